"""What the book is told of pods of others that wait."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.backends.base import Foreign
from gateway.broker.foreigners import AGAIN, TAKES, Foreigners
from gateway.leases import events
from gateway.leases.book import Book
from gateway.leases.policy import Policy
from gateway.protocol.model import Gpu, Phase, Rung


class Site:
    """Two nodes with a GPU each, and their book."""

    def __init__(self) -> None:
        self.book, self.now = Book(Policy(min_hold=0.0)), 0.0
        self.outside = Foreigners(self.book)
        for node in ("a", "b"):
            self.tell(events.GpuSeen(Gpu(f"gpu-{node}", node, rung=Rung.ANYWHERE, resource="x")))

    def tell(self, *happened: Any) -> None:
        self.book.handle_all(happened, self.now)
        self.book.validate()

    def waits(self, *pods: Foreign) -> None:
        self.tell(*self.outside.wait(pods, self.now))

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.tell(*self.outside.review(self.now))

    def kernel(self, name: str, node: str, executing: bool) -> None:
        """It has the GPU of its node."""
        gpus = (f"gpu-{node}",)
        told = events.KernelSeen(name, name, node=node, phase=Phase.HOLDING, gpus=gpus, executing=executing, resource="x")
        self.tell(told)

    def gpus(self, name: str) -> tuple[str, ...] | None:
        record = self.book.kernels.get(name)
        return None if record is None else record.gpus


@pytest.fixture
def site() -> Site:
    return Site()


POD = Foreign("pod x/y", 1, ("a", "b"), "x")


def test_who_does_not_take_what_was_left_for_it_leaves_it_to_kernels_and_counts_again_later(site: Site) -> None:
    """It waits for something else besides, such as memory: nobody knows for how long."""
    site.waits(POD)
    assert site.gpus(POD.name) == ("gpu-a",)
    site.later(TAKES)
    assert site.gpus(POD.name) == ("gpu-a",)
    site.later(1.0)
    assert site.gpus(POD.name) is None
    site.waits(POD)  # the cluster goes on saying so
    assert site.gpus(POD.name) is None
    site.later(AGAIN + 1.0)
    assert site.gpus(POD.name) == ("gpu-a",)


def test_who_waits_for_its_turn_waits_as_long_as_it_takes(site: Site) -> None:
    site.kernel("k1", "a", executing=True)
    site.kernel("k2", "b", executing=True)
    site.waits(POD)
    site.later(10 * TAKES)
    assert [record.kernel_id for record in site.book.queue()] == [POD.name]


def test_who_was_gone_in_between_counts_at_once(site: Site) -> None:
    site.waits(POD)
    site.later(TAKES + 1.0)
    site.waits()
    site.waits(POD)
    assert site.gpus(POD.name) == ("gpu-a",)


def test_it_waits_where_something_is_to_be_had_first_and_goes_where_that_is_so_later(site: Site) -> None:
    site.kernel("k1", "a", executing=True)
    site.kernel("k2", "b", executing=True)
    site.waits(POD)
    there = site.book.kernels[POD.name].node
    other = "b" if there == "a" else "a"
    site.tell(events.Executing("k2" if other == "b" else "k1", False))
    site.later(5.0)
    assert site.book.kernels[POD.name].node == other
    assert site.book.kernels["k2" if other == "b" else "k1"].phase is Phase.PARKING


@pytest.mark.parametrize(
    "pod", [Foreign("pod x/y", 2, ("a", "b"), "x"), Foreign("pod x/y", 1, ("a",), "z"), Foreign("pod x/y", 1, (), "x")]
)
def test_who_could_never_be_served_here_is_left_out(site: Site, pod: Foreign) -> None:
    site.waits(pod)
    assert site.book.queue() == [] and site.outside.names == set()
