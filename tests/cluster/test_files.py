"""A user's files: on a volume of their own in each of their kernels, in nobody else's, and there when a kernel ends."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.rig import PodGateway, on_gpu_node
from tests.integration.machine import Machine

HOME = "/home/jovyan"


@pytest.fixture
def homes(cluster: Cluster, namespace: str) -> Iterator[Path]:
    """A volume for ada and one for bob, and one that both share; each is a folder of this machine that the node sees too."""
    cluster.node(1)  # ours, or its node has no folders of this machine
    root = Path(tempfile.mkdtemp(prefix="homes-", dir="/tmp"))
    root.chmod(0o755)
    volumes = []
    for name in ("home-ada", "home-bob", "shared"):
        (root / name / "project").mkdir(parents=True)
        for folder in (root / name, root / name / "project"):
            folder.chmod(0o777)
        volumes += volume(namespace, name, root / name)
    for user in ("ada", "bob"):
        (root / "shared" / user).mkdir()
        (root / "shared" / user).chmod(0o777)
    cluster.apply(*volumes, namespace=namespace)
    yield root
    cluster.kubectl("delete", "pods", "--all", "-n", namespace, "--grace-period=1", "--timeout=60s")
    cluster.kubectl("delete", "pv", *(f"{namespace}-{name}" for name in ("home-ada", "home-bob", "shared")), "--wait=false")
    shutil.rmtree(root)


def volume(namespace: str, name: str, folder: Path) -> list[dict[str, Any]]:
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"{namespace}-{name}"},
         "spec": {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(folder)},
                  "claimRef": {"namespace": namespace, "name": name}}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
         "spec": {**common, "volumeName": f"{namespace}-{name}", "resources": {"requests": {"storage": "1Gi"}}}},
    ]  # fmt: skip


def test_each_users_kernels_have_their_own_files_and_work_in_the_notebooks_folder(
    homes: Path, cluster: Cluster, namespace: str, gateway_image: str, pod_machine: Machine
) -> None:
    def claim(name: str) -> dict[str, Any]:
        return {"persistentVolumeClaim": {"claimName": name}}

    volumes = [
        {"name": "home", "mount_path": HOME, **claim("home-{user}")},
        {"name": "shared", "mount_path": "/shared", "sub_path": "{user}", **claim("shared")},
    ]
    fields = {"volumes": volumes, "working_dir": HOME, "node_selector": on_gpu_node(cluster)}
    gateway = PodGateway(pod_machine, cluster, namespace, more={"default": fields})
    write = "import os; open('a.txt', 'w').write(os.environ['KERNEL_USERNAME']); open('/shared/b.txt', 'w').write('b'); print(os.getcwd())"
    try:
        for user in ("ada", "bob"):
            with gateway.kernel("default", KERNEL_USERNAME=user, KERNEL_WORKING_DIR=f"{HOME}/project") as kernel:
                assert kernel.open().run(write).out == f"{HOME}/project\n"
        with gateway.kernel("default", KERNEL_USERNAME="ada", KERNEL_WORKING_DIR=f"{HOME}/nowhere") as kernel:
            browser = kernel.open()
            assert browser.run("import os; print(os.getcwd(), os.listdir())").out == f"{HOME} ['project']\n"
            assert browser.run("print(open('project/a.txt').read(), os.listdir('/shared'))").out == "ada ['b.txt']\n"
        assert (homes / "home-bob/project/a.txt").read_text() == "bob"
        assert {path.name for path in (homes / "shared/ada").iterdir()} == {"b.txt"}
    finally:
        gateway.end()
