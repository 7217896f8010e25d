"""GPU time as the book's kernels make it."""

from __future__ import annotations

import pytest

from gateway.leases.events import Elsewhere
from gateway.leases.meter import Span

from .world import World


def ended(world: World) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {"held": [], "executed": [], "reserved": []}
    for span in world.book.meter.take():
        if span.end is not None:
            found[span.kind].append(span)
    return found


def seconds(spans: list[Span]) -> float:
    return sum(span.gpus * (span.end - span.begin) for span in spans)


def test_held_runs_from_grant_to_release_and_executed_while_a_cell_runs():
    world = World(idle_timeout=10.0, gpus=2)
    world.kernel("k", "ana", count=2, spec="torch")
    world.advance(100)
    world.run("k")
    world.advance(30)
    world.done("k")
    world.advance(50)
    world.run("k")
    world.advance(5)
    world.die("k")
    spans = ended(world)
    assert [(span.begin, span.end) for span in spans["held"]] == [(100, 140), (180, 185)]
    assert [(span.begin, span.end) for span in spans["executed"]] == [(100, 130), (180, 185)]
    assert [(span.begin, span.end) for span in spans["reserved"]] == [(100, 185)]
    assert seconds(spans["reserved"]) - seconds(spans["held"]) == 2 * 40
    assert {(span.user, span.kernelspec, span.flavor, span.gpus) for span in spans["held"]} == {("ana", "torch", "gpu", 2)}


def test_a_kernel_that_never_has_a_gpu_has_no_time():
    world = World()
    world.kernel("k")
    world.advance(10)
    world.die("k")
    assert world.book.meter.take() == []


def test_a_restart_ends_what_was_held_and_not_the_kernel():
    world = World()
    world.kernel("k")
    world.run("k")
    world.advance(10)
    world.restart("k")
    spans = ended(world)
    assert seconds(spans["held"]) == seconds(spans["executed"]) == 10
    assert spans["reserved"] == []


def test_a_found_kernel_holds_from_where_its_supervisor_says():
    from gateway.leases.events import KernelSeen
    from gateway.protocol.model import Phase

    world = World()
    world.now = 1000.0
    world.book.handle(KernelSeen("k", "ana", phase=Phase.HOLDING, gpus=("l0",), executing=True, phase_for=600.0), world.now)
    begun = {span.kind: span.begin for span in world.book.meter.take()}
    assert begun == {"reserved": 400.0, "held": 400.0, "executed": 1000.0}


def test_what_a_clusters_scheduler_gives_a_burst_is_its_users_gpu_time_while_its_pods_run():
    world = World(gpus=2)
    world.now = 0.0
    for now, running in ((10, 0), (20, 1), (25, 2), (30, 2), (40, 1), (45, 0), (50, 0)):
        world.now = now
        world.tell(Elsewhere("burst", "ana", 2, running, ("local",) if running else ()))
    world.tell(Elsewhere("burst", "ana", 0))
    spans = ended(world)
    assert [(span.begin, span.end, span.gpus) for span in spans["held"]] == [(20, 25, 1), (25, 40, 2), (40, 45, 1)]
    assert seconds(spans["held"]) == seconds(spans["executed"]) == seconds(spans["reserved"]) == 40
    assert {(span.kernel_id, span.user, span.flavor, span.node) for span in spans["held"]} == {("burst", "ana", "gpu", "local")}
    assert world.book.meter.open() == []


def test_held_is_never_more_than_there_is():
    world = World(min_hold=1.0)
    for i in range(4):
        world.kernel(f"k{i}")
        world.run(f"k{i}")
    for _ in range(40):
        world.advance(1)
        for i in range(4):
            world.done(f"k{i}")
            world.run(f"k{i}")
    for i in range(4):
        world.die(f"k{i}")
    assert seconds(ended(world)["held"]) == pytest.approx(40)
