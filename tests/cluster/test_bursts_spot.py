"""Elastic bursts where one of two nodes is a spot node: who is put there, and what its end costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from gateway.backends.kubernetes import names
from tests.cluster.cluster import OwnCluster
from tests.cluster.rig import PodGateway
from tests.cluster.test_bursts_elastic import burst, said, scale, sizes, stepping, works
from tests.integration.machine import Machine, until

pytestmark = pytest.mark.timeout(400)
LABEL, TAINT = "karpenter.sh/capacity-type", "spot"
LOST = "Other workers go on from its last save"


@dataclass
class Spot:
    """``node``: the number of the spot node."""

    cluster: OwnCluster
    gateway: PodGateway
    node: int = 2

    @property
    def name(self) -> str:
        return self.cluster.node(self.node).name

    def taint(self) -> None:
        self.cluster.kubectl("taint", "node", self.name, f"{TAINT}=true:NoSchedule")

    def there(self) -> dict[str, list[bool]]:
        """Whether workers are on it: those of the base, and those beyond."""
        found: dict[str, list[bool]] = {"base": [], "flex": []}
        for pod in self.gateway.pods(names.ROLE_RANK):
            part = "flex" if names.FLEX in pod["metadata"]["labels"] else "base"
            found[part].append(pod["spec"].get("nodeName") == self.name)
        return found


@pytest.fixture
def spot(broken_cluster: OwnCluster, namespace: str, gateway_image: str, pod_machine: Machine) -> Iterator[Spot]:
    """No other test is on the cluster meanwhile: it would find a node less."""
    more = {"default": {"spot_tolerations": [{"key": TAINT, "operator": "Exists"}]}}
    made = Spot(broken_cluster, PodGateway(pod_machine, broken_cluster, namespace, more=more))
    broken_cluster.kubectl("label", "node", made.name, f"{LABEL}=spot")
    yield made
    made.gateway.end()
    broken_cluster.repair()
    broken_cluster.kubectl("uncordon", made.name)
    broken_cluster.kubectl("label", "node", made.name, f"{LABEL}-")
    if broken_cluster.get("node", made.name)["spec"].get("taints"):
        broken_cluster.kubectl("taint", "node", made.name, f"{TAINT}:NoSchedule-")


def test_the_base_leaves_a_spot_node_to_workers_beyond_it_and_on_demand_nobody_is_there(spot: Spot) -> None:
    with spot.gateway.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        for words, base, flex in (("", [False, False], [True]), ("--on-demand", [False, False], [False])):
            cell = browser.begin(stepping(f"-w 2:3 -e none --name placed --show 0 {words}", steps=10_000))
            works(browser, cell, 2)
            scale(spot.gateway, "placed", 3)
            works(browser, cell, 3)
            assert spot.there() == {"base": base, "flex": flex}
            kernel.call("POST", "/interrupt")
            assert browser.finish(cell, 60).ename == "KeyboardInterrupt"
            until(lambda: spot.gateway.pods(names.ROLE_RANK) == [])


def test_a_spot_node_that_is_drained_costs_no_step_and_its_worker_is_not_made_again(spot: Spot) -> None:
    spot.taint()
    with spot.gateway.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.begin(stepping("-w 1:2 -e none --name drained --show 0", steps=250))
        works(browser, cell, 1)
        scale(spot.gateway, "drained", 2)
        works(browser, cell, 2)
        assert spot.there() == {"base": [False], "flex": [True]}
        spot.cluster.kubectl("drain", spot.name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
        works(browser, cell, 1)
        assert spot.there() == {"base": [False], "flex": []}
        done = browser.finish(cell, 120)
        assert done.status == "ok", (done, spot.gateway.log[-3000:])
        assert sizes(browser, 250) == [1, 2, 1]
        assert LOST not in said(browser, cell), "nothing was lost"
        assert spot.gateway.call("GET", "/api/bursts/drained").json()["workers"] == 1


def test_a_spot_node_that_ends_without_a_word_costs_what_was_done_since_the_last_save(spot: Spot) -> None:
    spot.taint()
    with spot.gateway.kernel("default", KERNEL_USERNAME="ada") as kernel:
        browser = kernel.open()
        cell = browser.begin(stepping("-w 1:2 -e none --name ended --show 0 --save-every 1s", steps=300))
        works(browser, cell, 1)
        scale(spot.gateway, "ended", 2)
        works(browser, cell, 2)
        spot.cluster.node(spot.node).kill()
        works(browser, cell, 1)
        done = browser.finish(cell, 120)
        assert done.status == "ok", (done, spot.gateway.log[-3000:])
        assert sizes(browser, 300) == [1, 2, 1]
        assert f"{LOST} (step " in said(browser, cell)
        assert burst(spot.gateway, "ended")["outcome"] == "ok"
