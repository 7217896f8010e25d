"""Sessions in virtual time, against the real lease book: what each rule holds, and who waits how long."""

import pytest

from gateway.leases.policy import Policy
from gateway.protocol.errors import ElasticError
from gateway.replay.play import play
from gateway.replay.rules import Costs, read_rules
from gateway.replay.trace import Cell, Session

SITE = Policy(idle_timeout=120.0, min_hold=5.0)
FREE = Costs(0.0, 0.0)


def session(name: str, start: float, *cells: Cell, gpus: int = 1, tail: float = 0.0) -> Session:
    return Session(name, name, start, gpus, cells, tail)


def run(
    policy: str, *sessions: Session, gpus: int = 1, node_size: int = 8, movable: bool = False, costs: Costs = FREE, site: Policy = SITE
):
    return play(sessions, gpus, node_size, read_rules(policy, site, costs, movable))


TWO_CELLS = session("a", 0, Cell(50, 100, 1), Cell(1000, 100, 1), tail=500)


@pytest.mark.parametrize(
    ("policy", "held"),
    [("reservation", 1750), ("cull:300", 450 + 400), ("elastic:120", 440), ("elastic:0", 200), ("oracle", 200)],
)  # a culled kernel has its GPU from its start, or else from the cell that started it again
def test_each_rule_holds_a_gpu_for_as_long_as_it_says(policy, held):
    figures = run(policy, TWO_CELLS)
    assert (figures.gpu_seconds_held, figures.gpu_seconds_executed) == (held, 200)
    assert figures.at_once == 1.0 and figures.wait_max == 0.0


def test_all_gpus_of_a_lease_count():
    wide = session("a", 0, Cell(0, 100, 4), gpus=4)
    assert run("elastic:0", wide, gpus=4).gpu_seconds_held == 400


def test_a_reservation_makes_others_wait_until_its_session_ends():
    other = session("b", 200, Cell(0, 10, 1))
    figures = run("reservation", TWO_CELLS, other)
    assert figures.wait_max == 1750 - 200 and figures.at_once == pytest.approx(2 / 3)


def test_an_idle_kernel_gives_way_and_its_user_waits_for_no_more_than_the_move():
    other = session("b", 200, Cell(0, 10, 1, int(10e9)), tail=5000)
    figures = run("elastic:3600", TWO_CELLS, other, costs=Costs(0.5, 0.1))
    assert figures.wait_max == pytest.approx(1.5 + 0.5)  # for the second cell of a: b is parked, a comes back
    assert figures.at_once == 1.0


def test_a_running_cell_is_waited_for():
    figures = run("elastic:120", session("a", 0, Cell(0, 1000, 1)), session("b", 100, Cell(0, 10, 1)))
    assert figures.wait_max == 900 and figures.at_once == 0.5
    assert figures.worst_user == pytest.approx(10 / 910) and figures.fairness < 1


def test_parking_and_resuming_count_as_held():
    figures = run("elastic:120", TWO_CELLS, costs=Costs(1.0, 0.0))
    assert figures.gpu_seconds_held == 440 + 1 + 1 + 1  # parked twice, resumed once: the first time nothing is there to resume
    assert (figures.attach_p50, figures.wait_max) == (1.0, 1.0)


def test_a_session_goes_on_later_where_a_cell_had_to_wait():
    late = session("b", 100, Cell(0, 10, 1), Cell(50, 10, 1))
    assert run("elastic:0", session("a", 0, Cell(0, 1000, 1)), late).wait_max == 900  # and its second cell waits for nobody


def test_a_cpu_cell_passes_while_others_have_every_gpu():
    busy, typist = session("a", 0, Cell(0, 1000, 1)), session("b", 100, Cell(0, 10, 0), Cell(5, 10, 1))
    assert run("elastic:120", busy, typist).cpu_delay_p99 == 0


def test_a_cpu_cell_waits_for_the_gpu_of_a_kernel_that_can_not_live_without():
    busy, typist = session("a", 0, Cell(0, 1000, 1)), session("b", 100, Cell(0, 10, 0), Cell(5, 10, 1))
    assert run("reservation", busy, typist).cpu_delay_p99 == 900


def test_a_session_without_gpus_waits_for_none():
    busy, typist = session("a", 0, Cell(0, 1000, 1)), session("b", 100, Cell(0, 10, 0), gpus=0)
    for policy in ("reservation", "cull:60", "elastic:120", "oracle"):
        assert run(policy, busy, typist).cpu_delay_p99 == 0


def test_a_kernel_stays_on_its_node_unless_kernels_are_movable():
    one = session("one", 0, Cell(0, 1, 1), Cell(99, 1000, 1))
    other = session("other", 1, Cell(0, 1, 1), tail=10)
    third = session("third", 2, Cell(0, 1, 1), Cell(100, 1000, 1))  # at home with the first or the second
    fourth = session("fourth", 3, Cell(0, 1, 1), tail=10)
    sessions = (one, other, third, fourth)
    assert run("elastic:0", *sessions, gpus=2, node_size=1, movable=True).wait_max < 10
    late = session("late", 0.5, Cell(0, 1, 1), Cell(100, 1000, 1))
    assert run("elastic:0", one, late, third, gpus=2, node_size=1).wait_max > 900


def test_the_gpus_of_one_lease_are_on_one_node_even_where_kernels_move():
    halves = [session(name, 0, Cell(0, 1000, 3), gpus=3) for name in "ab"]
    wide = session("c", 10, Cell(0, 10, 2), gpus=2)
    assert run("elastic:0", *halves, wide, gpus=8, node_size=4, movable=True).wait_max == 990


def test_a_culled_session_takes_its_gpu_back_when_it_goes_on():
    figures = run("cull:60", TWO_CELLS, session("b", 900, Cell(0, 1000, 1)))
    assert figures.wait_max == 750  # its second cell came at 1150


def test_a_wait_that_the_policy_ends_is_counted():
    figures = run(
        "elastic:0", session("a", 0, Cell(0, 1000, 1)), session("b", 100, Cell(0, 10, 1), Cell(2000, 10, 1)),
        site=Policy(queue_timeout=60.0),
    )  # fmt: skip
    assert (figures.denied, figures.wait_max, figures.gpu_seconds_executed) == (1, 60, 1010)


@pytest.mark.parametrize("policy", ["reservation", "cull:60"])
def test_a_kernel_that_was_denied_its_gpus_is_asked_for_again_by_the_next_cell(policy):
    figures = run(
        policy, session("a", 0, Cell(0, 1000, 1)), session("b", 100, Cell(0, 10, 1), Cell(2000, 10, 1)), site=Policy(queue_timeout=60.0)
    )
    assert (figures.denied, figures.gpu_seconds_executed) == (1, 1010)


def test_a_session_that_fits_on_no_node_is_named():
    with pytest.raises(ElasticError, match="Session big needs 16 GPUs on one node, and the largest has 8"):
        run("elastic:0", session("big", 0, Cell(0, 1, 16), gpus=16), gpus=64)


@pytest.mark.parametrize("name", ["", "elastic", "elastic:", "elastic:-1", "cull", "cull:soon", "oracle:1", "reservation:", "best"])
def test_a_policy_that_is_none_is_told_what_may_be(name):
    with pytest.raises(ElasticError, match="is no policy: write reservation, cull:3600, elastic:120 or oracle"):
        read_rules(name, SITE, FREE)


def test_durations_of_policies_may_be_written_as_people_do():
    assert read_rules("cull:1h", SITE, FREE).cull_after == 3600
    assert read_rules("elastic:2m", SITE, FREE).policy.idle_timeout == 120
