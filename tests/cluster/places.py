"""Where things lie: the cache that outlives runs, and each cluster's slot, which has a number, a folder and addresses of its own.

Several clusters may run at once, each in a slot. Nothing here touches the machine.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
NODES = (1, 2)
SLOTS = range(8)
SHARED = 0  # the slot of the cluster that `python -m tests.cluster up` makes; the others belong to one test run each
STATE = Path("/var/cache/elastic-gateway-cluster")  # only root writes here


def cache() -> Path:
    """The folder of what is built once; runs share it."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "jupyter-elastic-gateway" / "cluster"


def digest(*parts: bytes) -> str:
    """A short name for what is made from ``parts``."""
    found = hashlib.sha256()
    for part in parts:
        found.update(hashlib.sha256(part).digest())
    return found.hexdigest()[:16]


@dataclass(frozen=True)
class Slot:
    """One cluster's place on this machine."""

    number: int

    @property
    def name(self) -> str:
        """The link on the host, and what names of cgroups begin with; short, because a link has at most 15 characters."""
        return f"egc{self.number}"

    @property
    def folder(self) -> Path:
        return STATE / str(self.number)

    @property
    def lock(self) -> Path:
        """Held by the test run that owns the slot."""
        return STATE / f"{self.number}.lock"

    @property
    def turns(self) -> Path:
        """Held shared by each test that uses the cluster, and exclusively by one that breaks something."""
        return STATE / f"{self.number}.turns"

    @property
    def host(self) -> str:
        """The machine's own address on the cluster's network, where the control plane listens."""
        return f"10.86.{self.number}.1"

    @property
    def api(self) -> str:
        return f"https://{self.host}:6443"

    @property
    def etcd(self) -> str:
        return f"http://127.0.0.1:{23790 + 2 * self.number}"

    @property
    def etcd_peers(self) -> str:
        return f"http://127.0.0.1:{23791 + 2 * self.number}"

    @property
    def services(self) -> str:
        return f"10.87.{self.number}.0/24"

    @property
    def dns(self) -> str:
        """The service address that pods ask for names; nobody listens there unless a test installs a server."""
        return f"10.87.{self.number}.10"

    @property
    def pods(self) -> str:
        return f"10.85.{16 * self.number}.0/20"

    def node_address(self, node: int) -> str:
        return f"10.86.{self.number}.{10 + node}"

    def node_pods(self, node: int) -> str:
        return f"10.85.{16 * self.number + node}.0/24"

    def node_cgroup(self, node: int) -> str:
        return f"{self.name}-node-{node}"
