"""A real Kubernetes cluster: its control plane and two nodes that run pods.

For a process in namespaces of its own, which `python -m tests.cluster` makes. It is on the router:
a bridge that each node is connected to. A node is a network namespace with a containerd, a kubelet
and a kube-proxy. The process reaches pods and Services by name, and they reach it.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import httpx
import psutil
import trustme
import yaml

from tests.cluster.node import COMMAND_TIMEOUT_S, Node, run, signal_all
from tests.cluster.programs import PAUSE_IMAGE
from tests.support.eventually import eventually

FOLDER_VARIABLE = "ONCEFLOW_TEST_CLUSTER"
"""A folder with images and programs; everything that the cluster writes goes there."""
IMAGES, PROGRAMS = "images.tar", "programs"
SETTINGS = Path(__file__).parent / "settings"
ROUTER, PORT = "10.90.0.1", 6443
PODS, SERVICES, SERVICE_OF_API = "10.91.0.0/16", "10.96.0.0/16", "10.96.0.1"
BRIDGE = "nodes"
API = "apiserver"
START_TIMEOUT_S = 120
GONE_AFTER_S = 20
"""A node that is silent for this long is called unreachable; 40 s is Kubernetes' own choice."""
ADMINISTRATORS = "system:masters"


@dataclass(frozen=True)
class Cluster:
    """The API server, an administrator's way in, and the nodes."""

    address: str
    kubeconfig: Path
    client: httpx.Client
    nodes: Sequence[Node]

    def get(self, path: str) -> Any:
        return self.client.get(path).raise_for_status().json()

    def post(self, path: str, content: Mapping[str, Any]) -> Any:
        answer = self.client.post(path, json=content)
        assert answer.is_success, answer.text
        return answer.json()

    def kubectl(self, *arguments: str, content: str = "", timeout_s: float = 60) -> str:
        """Run it as the administrator; fails unless it ends with 0."""
        command = ["kubectl", f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(
            command, input=content, check=False, capture_output=True, text=True, timeout=timeout_s
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}"
        return done.stdout

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Make these objects, or bring them to what these say."""
        self.kubectl("apply", "-f", "-", content="---\n".join(map(json.dumps, manifests)))

    @contextmanager
    def api_away(self) -> Iterator[None]:
        """The API server answers no request inside the block; connections to it stay open."""
        running = psutil.process_iter(["cmdline"])
        found = [each for each in running if (each.info["cmdline"] or [])[1:2] == [API]]
        assert found, "no API server runs"
        signal_all(found, signal.SIGSTOP)
        try:
            yield
        finally:
            signal_all(found, signal.SIGCONT)
            eventually(lambda: _is_ready(self.client))

    def wait_until_ready(self) -> None:
        """Until every node is."""
        eventually(self._are_ready, timeout_s=START_TIMEOUT_S)

    def _are_ready(self) -> bool:
        found = self.get("/api/v1/nodes")["items"]
        told = [each for node in found for each in node["status"].get("conditions", ())]
        ready = [each for each in told if each["type"] == "Ready" and each["status"] == "True"]
        return len(ready) == len(self.nodes)

    @contextmanager
    def cordoned(self, node: Node) -> Iterator[None]:
        """No new pod is put there inside the block."""
        self.kubectl("cordon", node.name)
        try:
            yield
        finally:
            self.kubectl("uncordon", node.name)

    def node_of_broker(self) -> Node:
        """Where the broker's pod runs."""
        return self.node(self.get("/api/v1/namespaces/kafka/pods/kafka-0")["spec"]["nodeName"])

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def may(self, account: str, namespace: str, verb: str, resource: str, place: str = "") -> bool:
        """Whether a service account may do something, in its namespace or another place."""
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{namespace}:{account}",
                "resourceAttributes": {
                    "namespace": place or namespace,
                    "verb": verb,
                    "resource": resource,
                },
            },
        }
        answer = self.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])


@contextmanager
def cluster(names: Sequence[str] = ("node-a", "node-b")) -> Iterator[Cluster]:
    """Run it inside the block; ready when every node is."""
    place = os.environ.get(FOLDER_VARIABLE)
    assert place is not None, "run `make cluster`: a cluster needs namespaces of its own"
    folder = Path(place)
    for part in ("logs", "keys", "etcd"):
        (folder / part).mkdir(parents=True)
    address = f"https://{ROUTER}:{PORT}"
    with ExitStack() as stack:
        _start_router()
        nodes = [_connect(stack, folder, name, number) for number, name in enumerate(names, 1)]
        for node, other in permutations(nodes, 2):
            _inside(node, "ip", "route", "add", other.pods, "via", other.address)
        _write_keys(folder, nodes, address)
        context = ssl.create_default_context(cafile=folder / "keys" / "authority.pem")
        context.load_cert_chain(folder / "keys" / "administrator.pem")
        client = stack.enter_context(httpx.Client(base_url=address, verify=context, timeout=30))
        kube = str(folder / PROGRAMS / "kube")
        plane = _control_plane(folder)
        for part in ("etcd", API):
            stack.enter_context(_running(folder, part, [kube, part, *plane[part]]))
        eventually(lambda: _is_ready(client), timeout_s=START_TIMEOUT_S)
        for part in ("controllers", "scheduler"):
            stack.enter_context(_running(folder, part, [kube, part, *plane[part]]))
        _start_names(stack, folder)
        for node in nodes:
            _start_runtime(stack, folder, node)
        # Before the first pod: a node asks an outside registry for what it lacks.
        with ThreadPoolExecutor() as side_by_side:
            list(side_by_side.map(lambda node: _import_images(folder, node), nodes))
        for node in nodes:
            _start_node(stack, folder, node)
        made = Cluster(address, folder / "keys" / "administrator.kubeconfig", client, nodes)
        made.wait_until_ready()
        yield made


def _start_router() -> None:
    interfaces = {each["ifname"] for each in json.loads(run("ip", "-json", "link"))}
    assert interfaces == {"lo"}, f"expected a network namespace of our own, found {interfaces}"
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "addr", "add", f"{ROUTER}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _connect(stack: ExitStack, folder: Path, name: str, number: int) -> Node:
    """A node that has a network, and nothing runs on it yet."""
    keeper = stack.enter_context(
        _running(folder, f"{name}-network", ["unshare", "--net", "sleep", "infinity"])
    )
    ours = Path("/proc/self/ns/net").readlink()
    eventually(lambda: Path(f"/proc/{keeper.pid}/ns/net").readlink() != ours)
    node = Node(name, number, folder / name, keeper.pid)
    peer = ["peer", "name", "eth0", "netns", str(keeper.pid)]
    run("ip", "link", "add", node.link, "type", "veth", *peer)
    run("ip", "link", "set", node.link, "master", BRIDGE, "up")
    _inside(node, "ip", "link", "set", "lo", "up")
    _inside(node, "ip", "addr", "add", f"{node.address}/24", "dev", "eth0")
    _inside(node, "ip", "link", "set", "eth0", "up")
    _inside(node, "ip", "route", "add", "default", "via", ROUTER)
    _inside(node, "sysctl", "-qw", "net.ipv4.ip_forward=1")
    run("ip", "route", "add", node.pods, "via", node.address)
    return node


def _control_plane(folder: Path) -> Mapping[str, Sequence[str]]:
    keys = folder / "keys"
    etcd = "http://127.0.0.1:2379"
    return {
        "etcd": [
            f"--data-dir={folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            "--listen-peer-urls=http://127.0.0.1:2380",
        ],
        API: [
            f"--etcd-servers={etcd}",
            f"--bind-address={ROUTER}",
            f"--advertise-address={ROUTER}",
            f"--secure-port={PORT}",
            f"--client-ca-file={keys / 'authority.pem'}",
            f"--tls-cert-file={keys / 'apiserver.pem'}",
            f"--tls-private-key-file={keys / 'apiserver.pem'}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={keys / 'accounts.pem'}",
            f"--service-account-signing-key-file={keys / 'accounts.pem'}",
            f"--kubelet-client-certificate={keys / 'apiserver-to-kubelet.pem'}",
            f"--kubelet-client-key={keys / 'apiserver-to-kubelet.pem'}",
            f"--kubelet-certificate-authority={keys / 'authority.pem'}",
            "--kubelet-preferred-address-types=InternalIP",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-cluster-ip-range={SERVICES}",
        ],
        "controllers": [
            f"--kubeconfig={keys / 'controllers.kubeconfig'}",
            "--leader-elect=false",
            f"--service-account-private-key-file={keys / 'accounts.pem'}",
            f"--root-ca-file={keys / 'authority.pem'}",
            "--use-service-account-credentials",
            "--secure-port=0",
            f"--node-monitor-grace-period={GONE_AFTER_S}s",
            f"--flex-volume-plugin-dir={folder / 'plugins'}",
        ],
        "scheduler": [
            f"--kubeconfig={keys / 'scheduler.kubeconfig'}",
            "--leader-elect=false",
            "--secure-port=0",
        ],
    }


def _start_names(stack: ExitStack, folder: Path) -> None:
    """Names of pods and Services, for pods and for this process."""
    text = (SETTINGS / "Corefile").read_text().replace("ROUTER", ROUTER)
    (folder / "Corefile").write_text(
        text.replace("KUBECONFIG", str(folder / "keys" / "dns.kubeconfig"))
    )
    command = [str(folder / PROGRAMS / "coredns"), "-conf", str(folder / "Corefile")]
    stack.enter_context(_running(folder, "dns", command))
    resolver = folder / "resolv.conf"
    resolver.write_text(f"nameserver {ROUTER}\n")
    # In our own mount namespace: the machine's file stays as it is.
    run("mount", "--bind", str(resolver), "/etc/resolv.conf")


def _start_runtime(stack: ExitStack, folder: Path, node: Node) -> None:
    """The containerd of a node."""
    programs = folder / PROGRAMS
    for part in ("cni", "pod-logs"):
        (node.folder / part).mkdir(parents=True)
    (node.folder / "cni" / "10-bridge.conflist").write_text(json.dumps(_pod_network(node)))
    settings = (SETTINGS / "containerd.toml").read_text()
    for word, value in (("OWN", node.folder), ("PAUSE", PAUSE_IMAGE), ("PROGRAMS", programs)):
        settings = settings.replace(word, str(value))
    (node.folder / "containerd.toml").write_text(settings)
    _make_groups(node)
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    runtime = [str(programs / "containerd"), "--config", str(node.folder / "containerd.toml")]
    stack.enter_context(_running(folder, f"{node.name}-containerd", runtime, node, path))


def _import_images(folder: Path, node: Node) -> None:
    """Wait for its containerd, and give it the images."""
    program, socket = folder / PROGRAMS / "ctr", node.folder / "containerd.sock"
    ctr = [str(program), "-a", str(socket), "-n", "k8s.io"]
    eventually(lambda: _succeeds(*ctr, "version"), timeout_s=START_TIMEOUT_S)
    run(*ctr, "images", "import", "--local", str(folder / IMAGES), timeout_s=300)


def _start_node(stack: ExitStack, folder: Path, node: Node) -> None:
    """The kubelet and the kube-proxy of a node."""
    keys, programs = folder / "keys", folder / PROGRAMS
    kubelet = yaml.safe_load((SETTINGS / "kubelet.yaml").read_text())
    kubelet |= {
        "cgroupRoot": f"/{node.groups}",
        "containerRuntimeEndpoint": f"unix://{node.folder / 'containerd.sock'}",
        "podLogsDir": str(node.folder / "pod-logs"),
        "tlsCertFile": str(keys / f"{node.name}-server.pem"),
        "tlsPrivateKeyFile": str(keys / f"{node.name}-server.pem"),
        "clusterDNS": [ROUTER],
        "volumePluginDir": str(node.folder / "plugins"),
    }
    kubelet["authentication"]["x509"] = {"clientCAFile": str(keys / "authority.pem")}
    proxy = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": PODS,
        "hostnameOverride": node.name,
        "clientConnection": {"kubeconfig": str(keys / "proxy.kubeconfig")},
        "conntrack": {"maxPerCore": 0},
    }
    for name, content in (("kubelet", kubelet), ("proxy", proxy)):
        (node.folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    kube = str(programs / "kube")
    flags = [
        f"--kubeconfig={keys / f'{node.name}.kubeconfig'}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        f"--root-dir={node.folder / 'kubelet'}",
        f"--cert-dir={node.folder / 'certificates'}",
    ]
    for part, more in (("kubelet", flags), ("proxy", [])):
        command = [kube, part, f"--config={node.folder / f'{part}.yaml'}", *more]
        stack.enter_context(_running(folder, f"{node.name}-{part}", command, node))


def _pod_network(node: Node) -> Mapping[str, Any]:
    return {
        "cniVersion": "1.0.0",
        "name": f"pods-{node.name}",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "pods",
                "isGateway": True,
                "ipMasq": False,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(node.folder / "addresses"),
                    "ranges": [[{"subnet": node.pods}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def _make_groups(node: Node) -> None:
    """The kubelet wants its root in every hierarchy, and cores and memory in that of `cpuset`."""
    for hierarchy in Path("/sys/fs/cgroup").iterdir():
        if hierarchy.is_dir() and hierarchy.name != "unified":
            (hierarchy / node.groups).mkdir(exist_ok=True)
    whole = Path("/sys/fs/cgroup/cpuset")
    for what in ("cpuset.cpus", "cpuset.mems"):
        (whole / node.groups / what).write_text((whole / what).read_text())


def _write_keys(folder: Path, nodes: Sequence[Node], address: str) -> None:
    """Who is who: a node is `system:node:NAME` of the group `system:nodes`, or is not let in."""
    authority = trustme.CA()
    keys = folder / "keys"
    authority.cert_pem.write_to_path(str(keys / "authority.pem"))
    people = {
        "administrator": ("administrator", ADMINISTRATORS),
        "scheduler": ("system:kube-scheduler", ADMINISTRATORS),
        "controllers": ("system:kube-controller-manager", ADMINISTRATORS),
        "apiserver-to-kubelet": ("apiserver", ADMINISTRATORS),
        "proxy": ("system:kube-proxy", "system:node-proxier"),
        "dns": ("coredns", ADMINISTRATORS),
        **{node.name: (f"system:node:{node.name}", "system:nodes") for node in nodes},
    }
    for name, (user, group) in people.items():
        made = authority.issue_cert(f"{name}@test", common_name=user, organization_name=group)
        made.private_key_and_cert_chain_pem.write_to_path(str(keys / f"{name}.pem"))
        _write_kubeconfig(keys, name, address)
    service = "kubernetes.default.svc"
    servers = {
        "apiserver": [ROUTER, SERVICE_OF_API, service, f"{service}.cluster.local"],
        **{f"{node.name}-server": [node.address, node.name] for node in nodes},
    }
    for name, names in servers.items():
        made = authority.issue_cert(*names)
        made.private_key_and_cert_chain_pem.write_to_path(str(keys / f"{name}.pem"))
    accounts = authority.issue_cert("accounts@test")
    accounts.private_key_pem.write_to_path(str(keys / "accounts.pem"))


def _write_kubeconfig(keys: Path, person: str, address: str) -> None:
    name, pem = "test", str(keys / f"{person}.pem")
    authority = str(keys / "authority.pem")
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {"name": name, "cluster": {"server": address, "certificate-authority": authority}}
        ],
        "users": [{"name": name, "user": {"client-certificate": pem, "client-key": pem}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    (keys / f"{person}.kubeconfig").write_text(yaml.safe_dump(config))


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").is_success
    except httpx.HTTPError:
        return False


def _inside(node: Node, *command: str) -> None:
    run(*_entering(node), *command)


def _entering(node: Node) -> Sequence[str]:
    # Not `ip netns exec`, which mounts a /sys without control groups.
    return ["nsenter", f"--net=/proc/{node.network}/ns/net"]


@contextmanager
def _running(
    folder: Path,
    name: str,
    command: Sequence[str],
    node: Node | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    line = [*(_entering(node) if node else ()), *command]
    with (folder / "logs" / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **(environment or {})},
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _succeeds(*command: str) -> bool:
    done = subprocess.run(command, check=False, capture_output=True, timeout=COMMAND_TIMEOUT_S)
    return done.returncode == 0
