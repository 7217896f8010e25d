"""A network of a cluster's own: one namespace a node and one for the switch between them, joined to the machine by a single link.

The machine's firewall is never touched: what nodes say to each other passes through the switch's namespace, not through the machine.
Nothing leaves it either, because a node has no way out. Namespaces have no names and no mounts; they end with the process that holds them.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence

from .places import NODES, Slot
from .processes import Processes


class Network:
    """The network of one slot."""

    def __init__(self, slot: Slot, processes: Processes) -> None:
        self.slot = slot
        self.processes = processes

    def start(self) -> None:
        slot = self.slot
        # 1. The namespaces
        for name in ("switch", *map(_namespace, NODES)):
            self.processes.start(f"net-{name}", ["unshare", "--net", "sleep", "infinity"])
        switch = self.pid("switch")
        # 2. The link between this machine and the switch; pods and services are behind the nodes
        _ip([], f"link add {slot.name} type veth peer name host netns {switch}", f"addr add {slot.host}/24 dev {slot.name}",
            f"link set {slot.name} up", *(f"route add {slot.node_pods(node)} via {slot.node_address(node)}" for node in NODES),
            f"route add {slot.services} via {slot.node_address(NODES[0])}")  # fmt: skip
        # 3. The switch and its links to the nodes
        _ip(_enter(switch), "link set lo up", "link add switch type bridge", "link set switch up", "link set host master switch up",
            *(line for node in NODES for line in (
                f"link add node{node} type veth peer name eth0 netns {self.pid(_namespace(node))}", f"link set node{node} master switch up",
            )))  # fmt: skip
        # 4. The nodes: each knows the others' pods and no way out
        for node in NODES:
            enter = _enter(self.pid(_namespace(node)))
            _ip(enter, "link set lo up", f"addr add {slot.node_address(node)}/24 dev eth0", "link set eth0 up",
                "route add unreachable default",
                *(f"route add {slot.node_pods(other)} via {slot.node_address(other)}" for other in NODES if other != node))  # fmt: skip
            _run([*enter, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])

    def pid(self, name: str) -> int:
        """The process that holds a namespace, once it has made it."""
        deadline = time.monotonic() + 10
        own = os.readlink("/proc/self/ns/net")
        while time.monotonic() < deadline:
            pid = self.processes.pid(f"net-{name}")
            if pid is not None and os.readlink(f"/proc/{pid}/ns/net") != own:
                return pid
            time.sleep(0.01)
        raise RuntimeError(f"the network namespace {name} could not be made: it needs root and a kernel with namespaces")

    def of_node(self, node: int) -> str:
        """The path of a node's network namespace."""
        return f"/proc/{self.pid(_namespace(node))}/ns/net"

    def clear(self) -> None:
        """Ends the namespaces and waits until the kernel has taken the link away, with its routes."""
        self.processes.end(*(name for name in self.processes.names() if name.startswith("net-")))
        link = f"/sys/class/net/{self.slot.name}"
        deadline = time.monotonic() + 20
        while os.path.exists(link):
            if time.monotonic() > deadline:
                subprocess.run(["ip", "link", "del", self.slot.name], check=False, capture_output=True)
                return
            time.sleep(0.02)


def _namespace(node: int) -> str:
    return f"node-{node}"


def _enter(pid: int) -> list[str]:
    # not `ip netns exec`, which mounts /sys anew
    return ["nsenter", f"--net=/proc/{pid}/ns/net"]


def _ip(enter: Sequence[str], *lines: str) -> None:
    _run([*enter, "ip", "-batch", "-"], "\n".join(lines) + "\n")


def _run(command: Sequence[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the cluster's network could not be made: {' '.join(command)}: {done.stderr.strip()}\n{text}")
