"""Deletes executor pods of an earlier container of the driver's pod.

The kubelet restarts a container in the same pod. Executors belong to the pod, which lives, so
nothing else deletes those of the container that died: they hold their cores until they notice, and
stay as `Completed` then, more with each crash.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlencode

API = "kubernetes.default.svc:443"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts the token of the pod's service account, and who is trusted."""
TIMEOUT_S = 10.0
"""For each step of the call. It is not vital: a driver gives its executors new names."""


def delete_leftovers(
    selector: str, report: Callable[..., None], api: str = API, account: Path = ACCOUNT
) -> None:
    """Delete all executors of a release, before its only driver starts.

    The labels of `selector` are theirs alone. The report is told which they were, or why they
    stay; the next start tries again.
    """
    try:
        pods = _delete(selector, api, account)
    except (OSError, HTTPException, ValueError, LookupError, TypeError) as error:
        text = f"executors of an earlier start stay; selector {selector}: {error!r}"
        report("warning", text=text)
        return
    if pods:
        report("leftovers", deleted=pods)


def _delete(selector: str, api: str, account: Path) -> list[str]:
    namespace = (account / "namespace").read_text().strip()
    token = (account / "token").read_text().strip()
    trusted = ssl.create_default_context(cafile=str(account / "ca.crt"))
    # One call for all of them; the answer lists what it deletes.
    pods = f"/api/v1/namespaces/{namespace}/pods?{urlencode({'labelSelector': selector})}"
    with closing(HTTPSConnection(api, timeout=TIMEOUT_S, context=trusted)) as connection:
        connection.request("DELETE", pods, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        found = json.load(answer)
    if answer.status != 200:
        raise OSError(f"{answer.status} {found['message']}")
    return [pod["metadata"]["name"] for pod in found["items"]]
