"""One node: its files, its start in namespaces of its own, and its death, which takes all its containers along."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from . import cgroups
from .device_plugin import DevicePlugin
from .namespaces import Network
from .places import HERE, Slot
from .processes import Processes

PAUSE = "localhost/elastic-gateway-pause:test"


class Node:
    """Node ``number`` of a slot; also usable by a process that didn't start it."""

    def __init__(
        self, slot: Slot, number: int, binaries: Path, processes: Processes, network: Network, kubectl: Callable[..., str]
    ) -> None:
        self.slot = slot
        self.number = number
        self.name = f"node-{number}"
        self.folder = slot.folder / self.name
        self.address = slot.node_address(number)
        self._binaries = binaries
        self._processes = processes
        self._network = network
        self._kubectl = kubectl

    def configure(self) -> None:
        """Writes its files; its kubeconfigs come from the control plane once the API server is up."""
        files = {
            "address": self.address,
            "resolv.conf": "nameserver 127.0.0.1\n",
            "containerd.toml": _containerd(self.folder),
            "cni/10-bridge.conflist": json.dumps(_cni(self.slot.node_pods(self.number))),
            "kubelet.yaml": json.dumps(_kubelet(self.slot, self.slot.node_cgroup(self.number), self.folder)),
            "kube-proxy.yaml": json.dumps(_proxy(self.slot)),
        }
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def start(self) -> None:
        """Starts it, again after :meth:`kill` too; it is Ready some seconds later."""
        cgroups.make(self.slot.node_cgroup(self.number))
        enter = ["nsenter", f"--net={self._network.of_node(self.number)}"]
        alone = ["unshare", "--mount", "--pid", "--uts", "--fork", "--mount-proc", "--kill-child=SIGKILL"]
        init = ["bash", str(HERE / "node_init.sh"), str(self.folder), self.name, str(self._binaries)]
        self._processes.start(self.name, [*enter, *alone, *init], log=self.folder / "init.log")

    def kill(self) -> None:
        """The node is gone from one moment to the next, with everything that ran on it; the cluster has to notice by itself."""
        self._processes.end(self.name)
        cgroups.remove(self.slot.node_cgroup(self.number))

    def running(self) -> bool:
        return self._processes.pid(self.name) is not None

    @contextmanager
    def devices(self, resource: str, names: Sequence[str]) -> Iterator[DevicePlugin]:
        """Gives the node devices of a resource, by a device plugin; they can be allocated inside, and are gone afterwards."""
        plugin = DevicePlugin(self.folder / "lib/kubelet/device-plugins", resource)
        try:
            plugin.offer(names)
            plugin.register()
            self._until_allocatable(resource, len(names))
            yield plugin
            plugin.offer([])
            self._until_allocatable(resource, 0)
        finally:
            plugin.close()

    def _until_allocatable(self, resource: str, count: int) -> None:
        key = resource.replace(".", r"\.")
        self._kubectl("wait", f"node/{self.name}", f"--for=jsonpath={{.status.allocatable.{key}}}={count}", "--timeout=60s")

    def importing(self, archive: Path) -> subprocess.Popen[bytes]:
        """Begins to bring the images of an archive onto the node; its exit status says whether it went well."""
        command = ["nsenter", f"--mount=/proc/{self._init()}/ns/mnt", "ctr", "--namespace", "k8s.io", "images", "import", "-"]
        with open(archive, "rb") as file:
            return subprocess.Popen(command, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def import_image(self, archive: Path) -> None:
        """Brings the images of an archive (docker or OCI) onto the node."""
        finish(self.importing(archive), f"{archive.name} could not be brought onto {self.name}")

    def containerd_ready(self) -> bool:
        try:
            return Path(f"/proc/{self._init()}/root/run/containerd/containerd.sock").exists()
        except LookupError:
            return False

    def _init(self) -> int:
        pid = self._processes.pid(self.name)
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split() if pid is not None else []
        if not children:
            raise LookupError(f"{self.name} doesn't run; see {self.folder}/*.log")
        return int(children[0])


def finish(process: subprocess.Popen[bytes], failure: str) -> None:
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{failure}: {output.decode(errors='replace').strip()}")


def _containerd(folder: Path) -> str:
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true  # lowering it takes a capability that virtual machines may lack
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
"""


def _cni(pods: str) -> dict[str, object]:
    ipam = {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/var/lib/cni/networks"}
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": ipam}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}]}


def _kubelet(slot: Slot, cgroup: str, folder: Path) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupRoot": f"/{cgroup}",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "featureGates": {"KubeletInUserNamespace": True},  # what it may not set on this machine is not an error
        "enforceNodeAllocatable": [],
        "maxOpenFiles": 20000,
        "maxPods": 250,
        "clusterDNS": [slot.dns],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{folder}/resolv.conf",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        # Disks of developers are full, and images that were imported can't be pulled again
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        # Sooner than a real cluster, so that tests don't wait
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 8,
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
    }


def _proxy(slot: Slot) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": f"{slot.folder}/control-plane/kube-proxy.kubeconfig"},
        "mode": "iptables",
        "clusterCIDR": slot.pods,
        "conntrack": {"maxPerCore": 0, "min": 0},
        "healthzBindAddress": "",
        "metricsBindAddress": "127.0.0.1:10249",
    }
