"""``python -m tests.cluster build|crds|controllers|up|down|status|load``: a cluster that stays, and what clusters are made of."""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import available, build, crds, images
from .cluster import OwnCluster, shared
from .controllers import manifests as controllers
from .places import SHARED, STATE, Slot


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster", description="A Kubernetes with two nodes on this machine, for the tests."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build Kubernetes, Helm and the images into the cache; once, a quarter of an hour")
    commands.add_parser("crds", help="fetch the CRDs of JobSet, Trainer, KubeRay, MPI operator and Volcano into the cache; once, a minute")
    commands.add_parser("controllers", help="build JobSet, Kueue and Kubeflow Trainer into the cache; once, twenty minutes")
    commands.add_parser("up", help="start a cluster that stays until `down`; test runs use it instead of one of their own")
    commands.add_parser("down", help="end it, and what killed test runs have left")
    commands.add_parser("status", help="say whether it runs")
    loader = commands.add_parser("load", help="bring the images of an archive onto its nodes")
    loader.add_argument("archive", type=Path)
    args = parser.parse_args()
    try:
        if args.command == "load":
            return _load(args.archive)
        doing = {"build": _build, "crds": _crds, "controllers": _controllers, "up": _up, "down": _down, "status": _status}
        return doing[args.command]()
    except (build.BuildError, images.ImageError, available.NoCluster) as error:
        print(error, file=sys.stderr)
        return 1


def _build() -> int:
    _as_root()
    images.build()
    build.build(build.KUBERNETES)
    build.build(build.HELM)
    return 0


def _crds() -> int:
    crds.build()
    return 0


def _controllers() -> int:
    _build()
    crds.build()
    for each in controllers.ALL:
        controllers.prepare(each)
    return 0


def _up() -> int:
    """Safe to call when it is up, and by several at once."""
    with _one_at_a_time():
        cluster = shared()
        if cluster is None:
            if (reason := available.obstacle()) is not None:
                raise available.NoCluster(reason)
            available.clear_what_was_left()
            began = time.monotonic()
            cluster = OwnCluster(Slot(SHARED))
            cluster.start()
            (cluster.slot.folder / "up").touch()
            print(f"Up in {time.monotonic() - began:.1f} s.", file=sys.stderr)
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    print(f"export PATH={build.KUBERNETES.folder}:{build.HELM.folder}:$PATH")
    return 0


def _down() -> int:
    with _one_at_a_time():
        cluster = OwnCluster(Slot(SHARED))
        with cluster.turn(alone=True):  # not in the middle of somebody's test
            cluster.stop()
        available.clear_what_was_left()
    return 0


def _status() -> int:
    cluster = shared()
    if cluster is None:
        print(f"No cluster is up. {available.obstacle() or 'Start one with `python -m tests.cluster up`.'}")
        return 1
    print(cluster.kubectl("get", "nodes", "-o", "wide"), end="")
    return 0


def _load(archive: Path) -> int:
    _as_root()
    cluster = shared()
    if cluster is None:
        raise available.NoCluster("no cluster is up: start one with `python -m tests.cluster up`")
    cluster.import_image(archive)
    return 0


def _as_root() -> None:
    if os.geteuid() != 0:
        raise available.NoCluster(f"a cluster of our own takes root: use sudo, {available.ELSEWHERE}")


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    _as_root()
    STATE.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(Slot(SHARED).lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
