"""Disks of the cluster: folders of this machine that both nodes reach."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.cluster import Cluster


def offer_volume(
    cluster: Cluster,
    folder: Path,
    namespace: str,
    claim: str,
    size: str,
    mode: str = "ReadWriteOnce",
) -> Path:
    """Make a disk that a claim will be bound to.

    Args:
        cluster: where.
        folder: for all disks.
        namespace: of the claim.
        claim: its name; need not be there yet.
        size: as Kubernetes writes it; nothing keeps anybody to it.
        mode: of access.
    """
    place = folder / f"{namespace}-{claim}"
    place.mkdir(parents=True)
    names = [node.name for node in cluster.nodes]
    hosts = {"key": "kubernetes.io/hostname", "operator": "In", "values": names}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": place.name},
            "spec": {
                "capacity": {"storage": size},
                "accessModes": [mode],
                "claimRef": {"namespace": namespace, "name": claim},
                # Not `hostPath`, which does not give the folder to the pod's group.
                "local": {"path": str(place)},
                "nodeAffinity": {
                    "required": {"nodeSelectorTerms": [{"matchExpressions": [hosts]}]}
                },
            },
        }
    )
    return place
