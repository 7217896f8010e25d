"""From what a supervisor says to what the book is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gateway.broker.reading import Identity, Reading
from gateway.leases import events
from gateway.leases.book import Book
from gateway.leases.events import Deny, Event, Grant, Park
from gateway.leases.policy import Policy
from gateway.protocol.model import Gpu, KernelState, LeaseState, Phase, Rung

GENERATION = 3


def state(starts: int = 1, alive: bool = True, **lease: Any) -> KernelState:
    return KernelState(kernel_id="k", alive=alive, starts=starts, lease=LeaseState(**lease))


def reading(**lease: Any) -> Reading:
    found = Reading(Identity("k", "ada", name="elastic-python", display="a.ipynb"), GENERATION)
    found.seen(state(**lease), 100.0)
    return found


def sent(found: Reading, order: Grant | Park | Deny, epoch: int = 7) -> None:
    found.sent(order, 100.0)
    found.epoch = epoch


def kinds(told: list[Event]) -> list[str]:
    return [type(event).__name__ for event in told]


def answered(kind: type[Event], told: list[Event]) -> Any:
    return next(event for event in told if isinstance(event, kind))


def test_the_first_state_is_believed_as_a_whole() -> None:
    found = Reading(Identity("k", "ada"), GENERATION)
    [seen] = found.seen(state(phase="HOLDING", gpus=["A"], count=2, hold_for=9.0, executing=True), 100.0)
    assert isinstance(seen, events.KernelSeen)
    assert (seen.phase, seen.gpus, seen.count, seen.hold_for, seen.executing, seen.order) == (Phase.HOLDING, ("A",), 2, 9.0, True, None)


def test_levels_are_told_with_every_state() -> None:
    assert kinds(reading().next(state(), 101.0)) == ["Executing", "Unwanted", "RungTold"]
    assert kinds(reading().next(state(wanted=True, phase="WAITING"), 101.0)) == ["Executing", "Wanted", "RungTold"]


def test_what_can_be_done_with_the_state_is_told_with_every_state_and_at_the_first() -> None:
    [seen] = Reading(Identity("k", "ada"), GENERATION).seen(state(rung="exclusive", rung_reason="managed memory"), 100.0)
    assert (seen.rung, seen.rung_reason) == (Rung.EXCLUSIVE, "managed memory")
    told = answered(events.RungTold, reading().next(state(rung="same-gpu", rung_reason="bound"), 101.0))
    assert (told.rung, told.reason) == (Rung.SAME_GPU, "bound")


def test_a_supervisor_that_does_not_know_its_rung_leaves_it_to_the_gpu() -> None:
    assert answered(events.RungTold, reading(rung="exclusive").next(state(), 101.0)).rung is Rung.ANYWHERE


def test_a_new_process_is_told_before_its_rung() -> None:
    told = reading(rung="exclusive").next(state(starts=2, rung="anywhere"), 101.0)
    assert kinds(told) == ["Restarted", "Executing", "Unwanted", "RungTold"]


def test_an_answer_to_the_newest_order_is_told_once_and_before_the_levels() -> None:
    found = reading(wanted=True, phase="WAITING")
    sent(found, Grant("k", 5, ("A",)))
    held = state(phase="HOLDING", gpus=["A"], order=[GENERATION, 7], answer="done", executing=True)
    assert found.unanswered
    told = found.next(held, 101.0)
    assert kinds(told) == ["Resumed", "Executing", "Unwanted", "RungTold"]
    assert answered(events.Resumed, told).order == 5
    assert not found.unanswered
    assert kinds(found.next(held, 102.0)) == ["Executing", "Unwanted", "RungTold"]


def test_answers_to_older_orders_and_other_generations_are_not_ours() -> None:
    found = reading(wanted=True, phase="WAITING")
    sent(found, Grant("k", 5, ("A",)))
    for order in ([GENERATION, 6], [GENERATION - 1, 7], [0, 0]):
        assert kinds(found.next(state(order=order, answer="done"), 101.0)) == ["Executing", "Unwanted", "RungTold"]
    assert found.unanswered


def test_each_kind_of_answer_has_its_event() -> None:
    def told(order: Grant | Park | Deny, **lease: Any) -> list[Event]:
        found = reading()
        sent(found, order)
        return found.next(state(order=[GENERATION, 7], **lease), 101.0)

    failed = answered(events.ResumeFailed, told(Grant("k", 5, ("A",)), answer="resume_failed", fatal=True))
    assert (failed.reason, failed.fatal) == ("resume_failed", True)
    assert answered(events.Parked, told(Park("k", 5, "idle"), answer="done", phase="PARKED", parked_bytes=9)).bytes == 9
    assert answered(events.ParkRefused, told(Park("k", 5, "idle"), answer="does_not_fit", phase="HOLDING")).reason == "does_not_fit"
    assert answered(events.Denied, told(Deny("k", 5, "queue_timeout", ""), answer="done")).order == 5


def test_an_order_that_was_taken_and_not_yet_obeyed_is_no_answer() -> None:
    found = reading(wanted=True, phase="WAITING")
    sent(found, Grant("k", 5, ("A",)))
    assert "Resumed" not in kinds(found.next(state(phase="RESUMING", order=[GENERATION, 7], answer=""), 101.0))
    assert found.under_way


def test_an_answer_that_contradicts_the_book_is_followed_by_the_whole_truth() -> None:
    found = reading(phase="HOLDING", gpus=["A"])
    sent(found, Park("k", 5, "idle"))
    told = found.next(state(phase="COLD", order=[GENERATION, 7], answer="not_holding"), 101.0)
    assert kinds(told)[0] == "KernelSeen"


def test_a_state_that_was_lost_while_it_came_back_may_still_occupy_the_gpu() -> None:
    found = reading(wanted=True, phase="WAITING")
    sent(found, Grant("k", 5, ("A",)))
    occupied = found.next(state(phase="HOLDING", gpus=["A"], order=[GENERATION, 7], answer="resume_failed", fatal=True), 101.0)
    assert (kinds(occupied)[0], answered(events.KernelSeen, occupied).gpus) == ("KernelSeen", ("A",))


def test_a_state_that_was_lost_while_it_left_gives_the_gpu_back() -> None:
    found = reading(phase="HOLDING", gpus=["A"])
    sent(found, Park("k", 5, "idle"))
    lost = found.next(state(phase="COLD", order=[GENERATION, 7], answer="device_failed", fatal=True), 101.0)
    assert answered(events.KernelSeen, lost).phase is Phase.COLD


def test_a_kernel_that_died_or_was_replaced_has_given_everything_back() -> None:
    assert kinds(reading(phase="HOLDING", gpus=["A"]).next(state(alive=False), 101.0))[0] == "Restarted"
    assert kinds(reading(phase="HOLDING", gpus=["A"]).next(state(starts=2), 101.0))[0] == "Restarted"
    assert kinds(reading(phase="HOLDING", gpus=["A"]).next(state(starts=2, phase="HOLDING", gpus=["B"]), 101.0))[0] == "KernelSeen"


def test_a_grant_still_on_its_way_survives_a_restart() -> None:
    found = reading(wanted=True, phase="WAITING")
    sent(found, Grant("k", 5, ("A",)))
    assert answered(events.Restarted, found.next(state(starts=2), 101.0)).order == 4
    assert found.unanswered


def test_a_grant_that_was_being_obeyed_ends_with_the_process() -> None:
    found = reading(wanted=True, phase="WAITING")
    sent(found, Grant("k", 5, ("A",)))
    found.next(state(phase="RESUMING", gpus=["A"]), 101.0)
    assert answered(events.Restarted, found.next(state(starts=2), 102.0)).order == 5
    assert not found.unanswered


def test_a_wish_to_hold_is_told_when_it_is_new() -> None:
    found = reading()
    assert answered(events.HoldAsked, found.next(state(hold_for=60.0), 100.0)).seconds == 60.0
    assert "HoldAsked" not in kinds(found.next(state(hold_for=50.1), 110.0))
    assert answered(events.HoldAsked, found.next(state(hold_for=60.0), 110.0)).seconds == 60.0
    assert answered(events.HoldAsked, found.next(state(hold_for=0.0), 111.0)).seconds == 0.0
    assert "HoldAsked" not in kinds(found.next(state(hold_for=0.0), 112.0))


def test_a_hold_that_ran_out_is_no_new_wish() -> None:
    found = reading()
    found.next(state(hold_for=10.0), 100.0)
    assert "HoldAsked" not in kinds(found.next(state(hold_for=0.0), 111.0))


def test_a_wish_to_release_comes_last() -> None:
    found = reading(phase="HOLDING", gpus=["A"], hold_for=60.0)
    told = found.next(state(phase="HOLDING", gpus=["A"], release_asked=1), 101.0)
    assert kinds(told)[-2:] == ["HoldAsked", "ReleaseAsked"]
    assert "ReleaseAsked" not in kinds(found.next(state(phase="HOLDING", gpus=["A"], release_asked=1), 102.0))


def test_use_that_the_driver_sees_counts_as_executing_until_the_gpu_is_left() -> None:
    found = reading(phase="HOLDING", gpus=["A"], idle_for=5.0)
    found.used = True
    told = found.next(state(phase="HOLDING", gpus=["A"], idle_for=6.0), 101.0)
    assert answered(events.Executing, told).running
    assert found.idle_since is None
    told = found.next(state(phase="PARKED", idle_for=7.0), 102.0)
    assert not answered(events.Executing, told).running


def test_an_order_that_was_never_sent_is_no_longer_waited_for() -> None:
    found = reading(phase="HOLDING", gpus=["A"])
    park = Park("k", 5, "idle")
    found.sent(park, 100.0)
    assert found.withdraw(park)
    assert not found.unanswered
    assert not found.withdraw(Park("k", 6, "idle"))


def test_the_book_and_the_supervisor_differ_only_with_no_order_under_way() -> None:
    book = Book(Policy())
    book.handle_all([events.GpuSeen(Gpu("A", rung=Rung.ANYWHERE)), events.KernelSeen("k", "ada")], 100.0)
    record = book.kernels["k"]
    found = reading()
    assert not found.contradicts(record)
    held = replace(found.state, lease=LeaseState(phase="HOLDING", gpus=["A"]))
    found.next(held, 101.0)
    assert found.contradicts(record)
    sent(found, Grant("k", 5, ("A",)))
    assert not found.contradicts(record)
