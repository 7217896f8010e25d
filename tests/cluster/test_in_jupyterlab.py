"""What a user of JupyterLab sees when kernels are pods: all that one machine shows, and what only a cluster can."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.backends.kubernetes import names
from tests.browser.lab import JupyterLab
from tests.browser.pages import Notebook, browser, chromium, visit  # noqa: F401 - fixtures
from tests.browser.test_in_jupyterlab import (  # noqa: F401 - run here too
    test_a_cell_can_ask_for_input,
    test_a_cell_that_waits_shows_a_line_that_counts_and_an_interrupt_ends_it,
    test_a_cell_with_the_tag_cpu_does_not_wait_for_a_gpu,
    test_a_kernel_that_dies_says_so_in_its_cell_and_comes_back,
    test_a_killed_gateway_costs_no_line_repeats_none_and_queued_cells_run,
    test_a_restart_that_the_user_asks_for_is_no_death_and_ends_idle,
    test_widgets_carry_binary_data_both_ways,
)
from tests.cluster.rig import PodGateway, foreign_pod
from tests.integration.machine import until

pytestmark = pytest.mark.usefixtures("one_gpu")


class Servers:
    """A gateway whose kernels are pods, and the JupyterLab in front of it."""

    def __init__(self, pods: PodGateway, root: Path) -> None:
        self.pods = pods
        self.lab = JupyterLab(root, pods.url, pods.token)

    def kill_gateway(self) -> None:
        self.pods.stop(signal.SIGKILL)

    def start_gateway(self) -> None:
        self.pods.start()


@pytest.fixture
def servers(pods: PodGateway) -> Iterator[Servers]:
    chromium()
    root = Path(tempfile.mkdtemp(prefix="eg-b-", dir="/tmp"))
    running = Servers(pods, root)
    yield running
    running.lab.end()
    shutil.rmtree(root)


@pytest.fixture
def notebook(servers: Servers, visit: Callable[..., Notebook], request: pytest.FixtureRequest) -> Callable[..., Notebook]:  # noqa: F811
    """As in front of one machine; ``profile``: of its pod."""
    made: list[int] = []

    def make(*cells: str, profile: str = "gpu") -> Notebook:
        made.append(0)
        return visit(servers.lab.new(f"pod-{request.node.name}-{len(made)}", cells, profile, profile), ready=profile != "huge")

    return make


def test_two_notebooks_take_turns_on_one_gpu_and_the_scheduler_agrees(notebook: Callable[..., Notebook], pods: PodGateway) -> None:
    first = notebook("%%gpu\nimport time\nv = 42\nprint('mine')\ntime.sleep(600)", "%%gpu\nprint('kept', v)")
    second = notebook("%%gpu\nprint('second')\nimport time; time.sleep(600)")
    first.cell(0).locator(".cm-content").click()
    first.page.keyboard.press("Shift+Enter")
    first.until(0, "mine")
    second.run_all()
    assert "GPU" in second.until(0, "GPU")
    holders = [pod["metadata"]["labels"][names.KERNEL] for pod in pods.pods(names.ROLE_SLOT)]
    assert holders == [lease["kernel_id"] for lease in pods.gpu()["leases"] if lease["gpus"]]
    first.interrupt()
    second.until(0, "second")
    until(lambda: [p["metadata"]["labels"][names.KERNEL] for p in pods.pods(names.ROLE_SLOT)] not in ([], holders))
    second.interrupt()
    second.until(0, "KeyboardInterrupt")
    assert first.run_one(1) == "kept 42"


def test_a_foreign_pod_gets_the_gpu_of_an_idle_notebook_which_is_told_who_has_it(
    notebook: Callable[..., Notebook], pods: PodGateway
) -> None:  # fmt: skip
    sheet = notebook("%%gpu\nv = 7\nprint('on')", "%%gpu\nprint('again', v)")
    assert sheet.run_one(0) == "on"
    pods.cluster.apply(foreign_pod(pods.namespace), namespace=pods.namespace)
    until(lambda: pods.cluster.get("pod", "foreign", "-n", pods.namespace)["status"]["phase"] == "Running")
    assert pods.pods(names.ROLE_SLOT) == []
    sheet.cell(1).locator(".cm-content").click()
    sheet.page.keyboard.press("Shift+Enter")
    assert "Insufficient example.com" in sheet.until(1, "held by other pods of the cluster")
    pods.cluster.kubectl("delete", "pod", "foreign", "-n", pods.namespace, "--wait=false")
    assert "again 7" in sheet.until(1, "again")


def test_a_notebook_whose_pod_finds_no_room_says_what_is_missing(notebook: Callable[..., Notebook]) -> None:
    sheet = notebook("print(1)", profile="huge")
    sheet.until_status("starting")
    sheet.run_all()
    assert "cpu" in sheet.until(0, "No node has room")
