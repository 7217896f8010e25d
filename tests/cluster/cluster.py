"""A cluster: what tests do with one, whoever made it (:class:`Cluster`), and one of our own on this machine (:class:`OwnCluster`)."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from . import build, cgroups, images
from .control_plane import ControlPlane
from .device_plugin import DevicePlugin
from .namespaces import Network
from .node import Node, finish
from .places import NODES, SHARED, Slot
from .processes import Processes

IMPORT = "CLUSTER_IMPORT"  # a command that brings the images of the archive behind it into the cluster of KUBECONFIG
MEMORY = 6 << 30  # bytes that must be free for a cluster's files to lie in memory; without further images they take 1 GB


class CommandFailed(Exception):
    """kubectl or helm ended with an error; the message is its own."""


class NoNodeControl(Exception):
    """A foreign cluster's nodes and control plane are not ours to stop."""


class Cluster:
    """Any Kubernetes; what it runs goes through ``kubeconfig``."""

    def __init__(self, kubeconfig: Path, kubectl: str, helm: str) -> None:
        self.kubeconfig = kubeconfig
        self._kubectl = kubectl
        self._helm = helm

    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = 90) -> str:
        """What kubectl prints; raises CommandFailed with its error."""
        return self._command(self._kubectl, args, stdin, timeout)

    def helm(self, *args: str, stdin: str | None = None, timeout: float = 90) -> str:
        """What helm prints; raises CommandFailed with its error."""
        return self._command(self._helm, args, stdin, timeout)

    def get(self, *args: str) -> dict[str, Any]:
        """``kubectl get`` as an object."""
        return json.loads(self.kubectl("get", *args, "-o", "json"))

    def apply(self, *objects: dict[str, Any], namespace: str = "default") -> None:
        """Creates or changes objects, all in one call."""
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "-n", namespace, "-f", "-", stdin=items)

    @contextmanager
    def turn(self, alone: bool) -> Iterator[None]:
        """While a test uses the cluster; a foreign one is shared by whoever likes."""
        yield

    @cached_property
    def gpu_node(self) -> str:
        """The node on which tests have GPUs: of a foreign cluster the first that takes pods, as all kernels have to find room there."""
        for node in self.get("nodes")["items"]:
            if not node["spec"].get("unschedulable") and not node["spec"].get("taints"):
                return str(node["metadata"]["name"])
        raise NoNodeControl(f"{self.kubeconfig} is a cluster without a node that takes pods")

    @contextmanager
    def devices(self, resource: str, names: Sequence[str]) -> Iterator[Any]:
        """Devices of a resource on ``gpu_node``: counted by the scheduler, named by nobody. ``offer`` changes how many."""
        devices = _Counted(self, resource)
        devices.offer(names)
        try:
            yield devices
        finally:
            devices.offer([])

    def node(self, number: int) -> Node:
        """A node that can be killed; raises NoNodeControl where the cluster isn't ours."""
        raise NoNodeControl(f"{self.kubeconfig} is a cluster of others: node {number} can't be controlled")

    def stop_api(self) -> None:
        """The API server is gone until :meth:`start_api`; raises NoNodeControl where the cluster isn't ours."""
        raise NoNodeControl(f"{self.kubeconfig} is a cluster of others: its API server can't be stopped")

    def start_api(self) -> None:
        """Starts it and waits until it is ready."""
        raise NoNodeControl(f"{self.kubeconfig} is a cluster of others: its API server can't be started")

    def import_image(self, archive: Path) -> None:
        """Brings an archive's images onto every node; pods then need ``imagePullPolicy: Never``."""
        command = os.environ.get(IMPORT)
        if not command:
            raise NoNodeControl(
                f"{self.kubeconfig} is a cluster of others: say in {IMPORT} what loads an image, as `kind load image-archive`"
            )
        done = subprocess.run([*shlex.split(command), str(archive)], text=True, capture_output=True, check=False)
        if done.returncode:
            raise CommandFailed(f"{command} {archive}: {done.stderr.strip() or done.stdout.strip()}")

    def _command(self, program: str, args: Sequence[str], stdin: str | None, timeout: float) -> str:
        if shutil.which(program) is None:
            raise CommandFailed(f"there is no {os.path.basename(program)}: run `python -m tests.cluster build`")
        env = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        done = subprocess.run([program, *args], input=stdin, text=True, capture_output=True, check=False, timeout=timeout, env=env)
        if done.returncode:
            raise CommandFailed(f"{os.path.basename(program)} {' '.join(args)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout


class _Counted:
    """Devices that are but a number in a node's status."""

    def __init__(self, cluster: Cluster, resource: str) -> None:
        self._cluster, self._resource = cluster, resource

    def offer(self, devices: Sequence[str]) -> None:
        """Returns once the scheduler counts with them."""
        key, node = self._resource.replace("~", "~0").replace("/", "~1"), f"node/{self._cluster.gpu_node}"
        change = [{"op": "add", "path": f"/status/capacity/{key}", "value": str(len(devices))}]
        self._cluster.kubectl("patch", node, "--subresource=status", "--type=json", "-p", json.dumps(change))
        path = self._resource.replace(".", r"\.")
        self._cluster.kubectl("wait", node, f"--for=jsonpath={{.status.allocatable.{path}}}={len(devices)}", "--timeout=80s")

    @property
    def given(self) -> list[list[str]]:
        raise NoNodeControl(f"{self._cluster.kubeconfig} is a cluster of others: its GPUs are numbers, and no pod is told which it has")


class OwnCluster(Cluster):
    """The cluster in a slot: two nodes, reachable from this machine with their pods; also usable by a process that didn't start it."""

    def __init__(self, slot: Slot) -> None:
        programs = build.KUBERNETES.folder
        super().__init__(slot.folder / "control-plane/admin.kubeconfig", str(programs / "kubectl"), str(build.HELM.folder / "helm"))
        self.slot = slot
        self._processes = Processes(slot.folder / "processes")
        self._network = Network(slot, self._processes)
        self._control = ControlPlane(slot, programs, self._processes)
        self._nodes = {number: Node(slot, number, programs, self._processes, self._network, self.kubectl) for number in NODES}

    def start(self) -> None:
        """Starts everything and returns when both nodes are Ready and have the tests' images: some ten seconds."""
        # 1. What an earlier run left that was killed
        self.stop()
        self._make_folder()
        try:
            # 2. Everything that needs no API server, side by side with it
            self._network.start()
            self._control.start()
            for node in self._nodes.values():
                node.configure()
                node.start()
            importing = self._importing([images.archives()[image] for image in (images.PAUSE, images.KERNEL)])
            # 3. The rest
            self._control.complete()
            self.wait_for_nodes()
            _finish(importing)
        except BaseException:
            self.stop(keep_logs=True)
            raise

    def stop(self, keep_logs: bool = False) -> None:
        """Ends the cluster and leaves no process, namespace, link, mount or control group, and no file but the logs of a failed start."""
        names = self._processes.names()
        self._processes.end(*(name for name in names if not name.startswith("net-")))
        self._network.clear()
        for node in NODES:
            cgroups.remove(self.slot.node_cgroup(node))
        if keep_logs:
            return
        deadline = time.monotonic() + 10
        while os.path.ismount(self.slot.folder):  # busy until the last mount in a node's namespace has ended
            done = subprocess.run(["umount", str(self.slot.folder)], capture_output=True, text=True, check=False)
            if done.returncode and time.monotonic() > deadline:
                raise TimeoutError(f"{self.slot.folder} can't be unmounted: {done.stderr.strip()}")
        if self.slot.folder.exists():
            shutil.rmtree(self.slot.folder)

    @contextmanager
    def turn(self, alone: bool) -> Iterator[None]:
        """While somebody uses the cluster: beside others, or alone because something in it is going to be stopped."""
        with open(self.slot.turns, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield

    def ready(self) -> bool:
        """Whether the API server answers and every node runs."""
        return self._control.ready() and all(node.running() for node in self._nodes.values())

    def wait_for_nodes(self, seconds: float = 60) -> None:
        """Returns once both nodes are Ready."""
        names = [f"node/{node.name}" for node in self._nodes.values()]
        deadline = time.monotonic() + seconds
        while True:
            dead = [node for node in self._nodes.values() if not node.running()]
            if dead:
                raise RuntimeError(f"{dead[0].name} ended by itself; see {dead[0].folder}/*.log")
            try:
                self.kubectl("wait", "--for=condition=Ready", *names, "--timeout=5s")
                return
            except CommandFailed as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{error}; see {self.slot.folder}/node-*/*.log") from error
                time.sleep(0.1)

    @cached_property
    def gpu_node(self) -> str:
        return self._nodes[NODES[0]].name

    @contextmanager
    def devices(self, resource: str, names: Sequence[str]) -> Iterator[DevicePlugin]:
        """By a device plugin, so that each pod is told which it has."""
        with self._nodes[NODES[0]].devices(resource, names) as plugin:
            yield plugin

    def node(self, number: int) -> Node:
        return self._nodes[number]

    def stop_api(self) -> None:
        self._control.stop_api()

    def start_api(self) -> None:
        if self._processes.pid("kube-apiserver") is None:
            self._control.start_api()
        self._control.wait()

    def import_image(self, archive: Path) -> None:
        _finish(self._importing([archive]))

    def repair(self) -> None:
        """Starts again what a test stopped, and returns when all is Ready."""
        self.start_api()
        for node in self._nodes.values():
            if not node.running():
                node.start()
        self.wait_for_nodes()

    def _make_folder(self) -> None:
        """In memory where there is enough: images are taken in, and everything is gone, several times faster than on a disk."""
        self.slot.folder.mkdir(parents=True, mode=0o700)
        if _free_memory() > MEMORY:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=700", self.slot.name, str(self.slot.folder)], check=True)

    def _importing(self, archives: Sequence[Path]) -> list[tuple[Path, Node, subprocess.Popen[bytes]]]:
        """Begins to bring all archives onto all nodes at once."""
        deadline = time.monotonic() + 30
        while not all(node.containerd_ready() for node in self._nodes.values()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"containerd doesn't come up; see {self.slot.folder}/node-*/containerd.log and init.log")
            time.sleep(0.05)
        return [(archive, node, node.importing(archive)) for node in self._nodes.values() for archive in archives]


def _finish(importing: list[tuple[Path, Node, subprocess.Popen[bytes]]]) -> None:
    for archive, node, process in importing:
        finish(process, f"{archive.name} could not be brought onto {node.name}")


def _free_memory() -> int:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


def shared() -> OwnCluster | None:
    """The cluster that ``python -m tests.cluster up`` made, if it runs; waits for a test that has stopped a part of it."""
    slot = Slot(SHARED)
    if os.geteuid() != 0 or not (slot.folder / "up").exists():
        return None
    cluster = OwnCluster(slot)
    with cluster.turn(alone=False):
        return cluster if cluster.ready() else None
