"""Which cluster a test run uses, and why there is none where there is none.

In this order: the one that KUBECONFIG names; the one that ``python -m tests.cluster up`` made; one of the run's own.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import build, images
from .cluster import IMPORT, Cluster, OwnCluster, shared
from .places import SHARED, SLOTS, STATE, Slot

COMMANDS = {
    "containerd": "containerd", "ctr": "containerd", "runc": "runc", "etcd": "etcd-server", "ip": "iproute2", "iptables": "iptables",
    "conntrack": "conntrack", "nsenter": "util-linux", "unshare": "util-linux", "openssl": "openssl",
}  # fmt: skip
BUILD = "run `python -m tests.cluster build` as root, once (15 minutes)"
ELSEWHERE = "or set KUBECONFIG to any cluster (kind, k3d, ...)"


class NoCluster(Exception):
    """There is no cluster for tests; the message says why and what to do."""


def obstacle() -> str | None:
    """Why no cluster of our own can run here, with the remedy; None where one can."""
    if os.geteuid() != 0:
        return f"a cluster of our own takes root: run the tests as root, {ELSEWHERE}"
    packages = {package for program, package in COMMANDS.items() if shutil.which(program) is None}
    if not os.path.exists("/usr/lib/cni/bridge"):
        packages.add("containernetworking-plugins")
    if packages:
        return f"programs are missing: `apt-get install {' '.join(sorted(packages))}`, {ELSEWHERE}"
    if not (build.KUBERNETES.built() and build.HELM.built()):
        return f"Kubernetes or Helm has not been built: {BUILD}, {ELSEWHERE}"
    if absent := images.missing():
        return f"images have not been built ({', '.join(absent)}): {BUILD}, {ELSEWHERE}"
    return None


def given() -> Cluster | None:
    """The cluster of the user's own KUBECONFIG, if it is set."""
    kubeconfig = os.environ.get("KUBECONFIG")
    if not kubeconfig or Path(kubeconfig) == OwnCluster(Slot(SHARED)).kubeconfig:
        return None
    built = build.KUBERNETES.folder / "kubectl", build.HELM.folder / "helm"
    return Cluster(Path(kubeconfig), *(str(path) if path.exists() else path.name for path in built))


@contextmanager
def a_cluster() -> Iterator[Cluster]:
    """The cluster of this run; one that was made for it ends with it."""
    found = given()
    if found is not None and os.environ.get(IMPORT):
        found.import_image(images.archives()[images.KERNEL])
    found = found or shared()
    if found is not None:
        yield found
        return
    with own_cluster() as own:
        yield own


@contextmanager
def own_cluster() -> Iterator[OwnCluster]:
    """A cluster that is made now and ends with the block; what killed runs have left is cleared before."""
    if (reason := obstacle()) is not None:
        raise NoCluster(reason)
    clear_what_was_left()
    with _free_slot() as slot:
        cluster = OwnCluster(slot)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()


@contextmanager
def _free_slot() -> Iterator[Slot]:
    STATE.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number in SLOTS:
        slot = Slot(number)
        if number == SHARED:
            continue
        with open(slot.lock, "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield slot
            return
    raise NoCluster(f"{len(SLOTS) - 1} clusters run already, one for each test run: wait for one to end")


def clear_what_was_left() -> None:
    """Ends the clusters of runs that were killed."""
    STATE.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number in SLOTS:
        slot = Slot(number)
        if number == SHARED or not slot.folder.exists():
            continue
        with open(slot.lock, "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            OwnCluster(slot).stop()
