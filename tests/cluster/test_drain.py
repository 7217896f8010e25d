"""A node is taken out of service while kernels are on it, and put back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.backends.kubernetes import names
from tests.cluster.rig import PodGateway
from tests.integration.machine import until
from tests.integration.serving import GPU

pytestmark = pytest.mark.usefixtures("one_gpu")


def drain(gateway: PodGateway, tmp_path: Path, *options: str) -> str:
    """By the command, as an administrator does it."""
    token = tmp_path / "token"
    token.write_text(gateway.token)
    command = [
        sys.executable,
        "-m",
        "gateway.cli",
        "drain",
        gateway.cluster.gpu_node,
        "--url",
        gateway.url,
        "--token-file",
        str(token),
        *options,
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def nodes(gateway: PodGateway) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in gateway.pods(names.ROLE_KERNEL)}


def test_on_a_drained_node_cells_end_gpus_go_back_and_nothing_begins_until_it_is_put_back(pods: PodGateway, tmp_path: Path) -> None:
    here = pods.cluster.gpu_node
    with pods.kernel("gpu") as kernel:
        browser = kernel.open()
        cell = browser.begin(GPU + "import time; v = 1; print('on', flush=True); time.sleep(3); print('done')")
        browser.wait(lambda m: m["parent"] == cell and m["type"] == "stream")
        assert here in drain(pods, tmp_path)
        assert browser.finish(cell).out == "on\ndone\n", "a cell that runs is never cut short"
        until(lambda: pods.pods(names.ROLE_SLOT) == [])
        assert kernel.lease["phase"] == "PARKED"
        refused = browser.run(GPU + "v")
        assert refused.status == "error" and "drained" in refused.evalue
        assert browser.run("%%cpu\nprint(v)").out == "1\n", "its variables are there"

        # 1. what needs no GPU of that node starts on another
        with pods.kernel("default") as two, pods.kernel("default") as three:
            for other in (two, three):
                assert other.open().run("1").status == "ok"
                assert nodes(pods)[names.kernel_pod(other.id)] not in ("", here)

        # 2. what can be nowhere else waits, and says so
        late = pods.kernel("gpu")
        until(lambda: "affinity" in late.call("GET").json().get("reason", ""))
        assert late.call("DELETE").status_code == 204

        # 3. back in service
        drain(pods, tmp_path, "--off")
        assert browser.run(GPU + "print(v)").out == "1\n"
        assert nodes(pods)[names.kernel_pod(kernel.id)] == here
