"""The gate's decisions, without sockets or clocks."""

from __future__ import annotations

import itertools

import pytest

from gateway.pod.gate import BLOCKING, INFO, PASSING, Abort, Fail, Gate, Hold, Inform, Request, Send, Signal
from gateway.protocol.model import Phase

_ids = itertools.count()


def cell(code: str = "gpu", lane: str = "") -> Request:
    return Request("source", [], f"m{next(_ids)}", "execute_request", lane, code)


def ask(msg_type: str, lane: str = "") -> Request:
    return Request("source", [], f"m{next(_ids)}", msg_type, lane)


def make_gate(ready: bool = True, count: int = 1) -> Gate:
    gate = Gate(count, lambda request: ("gpu" in request.code, ""), lambda request: None)
    if ready:
        gate.kernel_ready()
    return gate


@pytest.fixture
def gate() -> Gate:
    return make_gate()


def hold(gate: Gate) -> Gate:
    gate.moved(Phase.RESUMING)
    gate.moved(Phase.HOLDING)
    return gate


def test_a_gpu_cell_waits_until_the_lease_is_granted(gate: Gate) -> None:
    waiting = cell()
    assert gate.request(waiting) == [Hold(waiting)]
    assert gate.wanted and gate.phase is Phase.WAITING and not gate.executing
    assert Send(waiting) not in gate.moved(Phase.RESUMING)
    assert gate.moved(Phase.HOLDING) == [Send(waiting)]
    assert gate.executing and not gate.wanted


@pytest.mark.parametrize("rest", [phase for phase in Phase if phase is not Phase.WAITING])
def test_a_cpu_cell_passes_in_any_phase(gate: Gate, rest: Phase) -> None:
    gate.moved(rest)
    passing = cell("cpu")
    assert gate.request(passing) == [Send(passing)]
    assert not gate.executing and not gate.wanted


def test_a_cpu_cell_never_overtakes_a_cell_that_waits(gate: Gate) -> None:
    first, second, third = cell("gpu"), cell("cpu"), cell("gpu")
    for request in (first, second, third):
        gate.request(request)
    assert gate.moved(Phase.HOLDING) == [Send(first), Send(second), Send(third)]


def test_held_cells_go_through_together_so_that_stop_on_error_can_abort_them(gate: Gate) -> None:
    cells = [cell() for _ in range(5)]
    for request in cells:
        gate.request(request)
    assert gate.moved(Phase.HOLDING) == [Send(request) for request in cells]


@pytest.mark.parametrize("msg_type", sorted(PASSING))
def test_a_question_without_side_effects_overtakes_a_cell_that_waits(gate: Gate, msg_type: str) -> None:
    gate.request(cell())
    question = ask(msg_type)
    assert gate.request(question) == [Send(question)]
    assert not gate.executing


def test_a_comm_message_keeps_its_place_behind_a_cell_that_waits(gate: Gate) -> None:
    waiting, comm = cell(), ask("comm_msg")
    gate.request(waiting)
    assert gate.request(comm) == []
    assert gate.moved(Phase.HOLDING) == [Send(waiting), Send(comm)]
    assert list(gate.in_flight) == [waiting.msg_id], "a comm message has no reply to wait for"


def test_a_subshell_is_not_held_up_by_the_main_shell(gate: Gate) -> None:
    gate.request(cell())
    other = cell("cpu", lane="subshell")
    assert gate.request(other) == [Send(other)]


def test_executing_ends_with_the_reply_and_not_before(gate: Gate) -> None:
    running = cell()
    hold(gate).request(running)
    assert gate.executing
    assert gate.replied(running.msg_id) is running
    assert not gate.executing and gate.replied(running.msg_id) is None


def test_a_cpu_cell_in_a_holding_kernel_does_not_count_as_executing(gate: Gate) -> None:
    hold(gate).request(cell("cpu"))
    assert not gate.executing


def test_an_interrupt_ends_the_wait_of_the_first_and_aborts_the_rest(gate: Gate) -> None:
    first, second, comm = cell(), cell("cpu"), ask("comm_msg")
    for request in (first, second, comm):
        gate.request(request)
    effects = gate.interrupt()
    assert isinstance(effects[0], Fail) and effects[0].ename == "KeyboardInterrupt" and effects[0].request is first
    assert effects[1:] == [Abort(second), Send(comm)]
    assert not gate.wanted and gate.phase is Phase.COLD


def test_an_interrupt_reaches_the_kernel_when_something_runs(gate: Gate) -> None:
    gate.request(cell("cpu"))
    assert Signal() in gate.interrupt()
    gate.request(cell("gpu"))
    assert Signal() in gate.interrupt()


def test_waiting_while_parked_and_then_cancelled_is_parked_again(gate: Gate) -> None:
    gate.moved(Phase.PARKED)
    gate.request(cell())
    assert gate.phase is Phase.WAITING
    gate.interrupt()
    assert gate.phase is Phase.PARKED


def test_a_refused_lease_fails_the_waiting_cells_with_the_reason(gate: Gate) -> None:
    first, second = cell(), cell()
    gate.request(first)
    gate.request(second)
    assert gate.denied("LeaseError", "why") == [Fail(first, "LeaseError", "why"), Abort(second)]
    assert not gate.wanted


def test_everything_waits_for_a_kernel_that_starts_and_then_goes_in_order() -> None:
    gate = make_gate(ready=False)
    first, second = ask("kernel_info_request"), cell("cpu")
    assert gate.request(first) == [] and gate.request(second) == []
    assert not gate.wanted, "no GPU is asked for before the kernel can use one"
    assert gate.kernel_ready() == [Send(first), Send(second)]


def test_a_gpu_cell_that_came_during_the_start_is_held_once_the_kernel_is_ready() -> None:
    gate = make_gate(ready=False)
    waiting = cell()
    gate.request(waiting)
    assert gate.kernel_ready() == [Hold(waiting)] and gate.wanted


def test_cells_sent_during_a_restart_run_in_the_new_kernel_and_earlier_ones_are_aborted(gate: Gate) -> None:
    running, early, late = cell("cpu"), cell("gpu"), cell("cpu")
    gate.request(running)
    gate.request(early)
    assert gate.closing() == [Abort(early)]
    assert gate.request(late) == []
    assert gate.gone("ended", asked=True) == [Abort(running)]
    assert gate.kernel_ready() == [Send(late)]


def test_a_kernel_that_dies_closes_every_cell_and_tells_the_oldest_why(gate: Gate) -> None:
    question, running, queued, waiting = ask("complete_request"), cell("cpu"), cell("cpu"), cell("gpu")
    for request in (question, running, queued, waiting):
        gate.request(request)
    effects = gate.gone("exit code 3", asked=False)
    assert effects == [Fail(running, "KernelDied", "exit code 3"), Abort(queued), Abort(question), Abort(waiting)]
    assert not gate.in_flight and not gate.lanes and gate.phase is Phase.COLD


def test_a_kernel_that_dies_while_its_cell_waits_tells_that_cell_why(gate: Gate) -> None:
    waiting = cell()
    gate.request(waiting)
    assert gate.gone("killed", asked=False) == [Fail(waiting, "KernelDied", "killed")]


def test_something_blocked_on_the_parked_gpu_asks_for_the_lease_and_then_counts_as_executing(gate: Gate) -> None:
    gate.moved(Phase.PARKED)
    gate.request(cell("cpu"))
    gate.stall()
    assert gate.wanted and gate.phase is Phase.WAITING
    gate.moved(Phase.RESUMING)
    gate.moved(Phase.HOLDING)
    assert gate.executing and not gate.wanted


def test_a_blocked_request_that_ends_by_itself_asks_no_more(gate: Gate) -> None:
    gate.moved(Phase.PARKED)
    running = cell("cpu")
    gate.request(running)
    gate.stall()
    gate.replied(running.msg_id)
    assert not gate.wanted and gate.phase is Phase.PARKED


def test_gpu_off_lets_everything_through(gate: Gate) -> None:
    waiting = cell()
    gate.request(waiting)
    assert gate.switch(False) == [Send(waiting)]
    assert not gate.wanted
    gate.switch(True)
    after = cell()
    assert gate.request(after) == [Hold(after)]


def test_a_kernel_without_gpus_never_waits() -> None:
    gate = make_gate(count=0)
    request = cell()
    assert gate.request(request) == [Send(request)]
    assert not gate.wanted


def test_a_cell_that_arrives_while_parking_waits_for_the_next_lease(gate: Gate) -> None:
    hold(gate).moved(Phase.PARKING)
    waiting = cell()
    assert gate.request(waiting) == [Hold(waiting)] and gate.wanted and gate.phase is Phase.PARKING
    gate.moved(Phase.PARKED)
    assert gate.phase is Phase.WAITING


def test_a_gpu_that_is_asked_back_during_a_cell_is_not_used_by_the_next_one(gate: Gate) -> None:
    running, next_one, cpu = cell(), cell(), cell("cpu", lane="other")
    hold(gate).request(running)
    gate.yielding = True
    assert gate.request(next_one) == [Hold(next_one)]
    assert gate.request(cpu) == [Send(cpu)]
    gate.replied(running.msg_id)
    assert not gate.executing, "the broker can take it now, however soon the next cell came"
    gate.moved(Phase.PARKING)
    gate.moved(Phase.PARKED)
    assert gate.wanted and not gate.yielding


def test_a_gpu_that_was_asked_back_and_not_taken_serves_the_cells_that_stood_aside(gate: Gate) -> None:
    hold(gate)
    gate.yielding = True
    aside = cell()
    gate.request(aside)
    assert gate.go_on() == [Send(aside)]


def test_a_cell_interrupted_before_it_has_begun_is_interrupted_as_it_begins(gate: Gate) -> None:
    first, second = cell("cpu"), cell("cpu")
    gate.request(first)
    gate.request(second)
    gate.interrupt()
    assert gate.begins(first.msg_id) == [Signal()]
    assert gate.begins(second.msg_id) == [], "what follows is aborted by the kernel, not interrupted"


def test_a_cell_that_begins_undisturbed_is_left_alone(gate: Gate) -> None:
    running = cell("cpu")
    gate.request(running)
    assert gate.begins(running.msg_id) == [] and gate.begins("unknown") == []


@pytest.mark.parametrize("rest", BLOCKING)
def test_what_kernel_it_is_is_told_in_its_place_while_it_may_be_blocked(gate: Gate, rest: Phase) -> None:
    gate.moved(rest)
    first, runs, second = ask(INFO), cell("cpu"), ask(INFO)
    assert gate.request(first) == [Send(first)], "an idle kernel answers for itself"
    gate.replied(first.msg_id)
    gate.request(runs)
    assert gate.request(second) == [Inform(second)]
    assert second.msg_id not in gate.in_flight
    gate.replied(runs.msg_id)
    third = ask(INFO)
    assert gate.request(third) == [Send(third)]


def test_a_kernel_with_its_gpu_says_itself_what_it_is_once_it_is_through(gate: Gate) -> None:
    hold(gate).request(cell())
    question = ask(INFO)
    assert gate.request(question) == [Send(question)]


def test_a_message_without_a_reply_that_is_blocked_wants_the_gpu_until_the_kernel_is_through_with_it(gate: Gate) -> None:
    gate.moved(Phase.PARKED)
    gate.stall()
    assert not gate.wanted, "nothing runs"
    comm, other = ask("comm_msg"), ask("complete_request")
    gate.request(comm)
    gate.request(other)
    gate.stall()
    assert gate.wanted
    gate.replied(other.msg_id)
    assert gate.wanted
    gate.said(comm.msg_id, "busy")
    assert gate.wanted
    gate.said(comm.msg_id, "idle")
    assert not gate.wanted


def test_a_message_without_a_reply_whose_idle_was_lost_is_through_once_a_later_cell_is(gate: Gate) -> None:
    gate.moved(Phase.PARKED)
    before, runs, after = ask("comm_msg"), cell("cpu"), ask("comm_msg")
    for request in (before, runs, after):
        gate.request(request)
    gate.replied(runs.msg_id)
    assert list(gate.one_way) == [after.msg_id]
