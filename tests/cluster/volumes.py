"""Disks of the cluster: small file systems of this machine that both nodes reach."""

from __future__ import annotations

import uuid
from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.cluster.node import run

DISK_BYTES = 256 << 20


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
        folder: for all disks.
        namespace: of the claim.
        claim: its name; need not be there yet.
        size: as Kubernetes writes it; the disk has `DISK_BYTES` all the same.

    Returns:
        Where it is mounted.
    """
    place = folder / f"{namespace}-{claim}-{uuid.uuid4().hex[:6]}"
    place.mkdir(parents=True)
    disk = place.with_suffix(".disk")
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    run("mkfs.ext4", "-q", "-m", "0", str(disk))
    run("mount", "-o", "loop", str(disk), str(place))
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
