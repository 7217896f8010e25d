"""Synthetic work is as the recorded percentiles say, the same for a seed, and comes in bursts."""

import json

import pytest

from gateway.replay.figures import percentile
from gateway.replay.play import play
from gateway.replay.rules import Costs, read_rules
from gateway.replay.synthetic import RECORDED, WINDOW, Distribution, synthesize
from gateway.settings import Leases


@pytest.fixture(scope="module")
def recorded():
    return json.loads(RECORDED.read_text())["june1_2_60s"]


@pytest.fixture(scope="module")
def days():
    return synthesize(2)


def test_the_percentiles_come_with_their_source():
    assert "github.com/" in json.loads(RECORDED.read_text())["source"]


def test_between_two_percentiles_values_grow_by_equal_factors():
    distribution = Distribution({"0": 1, "50": 100, "100": 100})
    assert [distribution.at(rank) for rank in (0, 0.25, 0.5, 1)] == pytest.approx([1, 10, 100, 100])


def test_two_days_have_the_recorded_sessions_and_shares(days, recorded):
    assert len(days) == recorded["sessions"]
    assert {str(count): sum(s.gpus == count for s in days) for count in (0, 1, 4, 8)} == recorded["session_gpus"]
    cells = [cell for session in days for cell in session.cells]
    assert len(cells) == pytest.approx(recorded["tasks"], rel=0.05)
    assert sum(not cell.gpus for cell in cells) / len(cells) == pytest.approx(recorded["cpu_only_tasks"] / recorded["tasks"], abs=0.01)


@pytest.mark.parametrize("percent", [25, 50, 75, 90])
def test_cells_gaps_and_lengths_have_the_recorded_percentiles(days, recorded, percent):
    cells = [cell for session in days for cell in session.cells]
    assert percentile(sorted(cell.duration / 60 for cell in cells), percent) == pytest.approx(
        recorded["gpu_task_duration"][str(percent)], rel=0.1
    )
    gaps = sorted(cell.gap / 60 for session in days for cell in session.cells[1:])
    assert percentile(gaps, percent) == pytest.approx(recorded["gap_any"][str(percent)], rel=0.15)
    lengths = sorted((sum(cell.gap + cell.duration for cell in session.cells) + session.tail) / 60 for session in days)
    if percent >= 50:  # the shortest come out longer than recorded
        assert percentile(lengths, percent) == pytest.approx(recorded["session_length"][str(percent)], rel=0.2)


def test_absences_are_longer_than_any_poisson_process_has_them(days):
    gaps = sorted(cell.gap for session in days for cell in session.cells[1:])
    mean = sum(gaps) / len(gaps)
    assert percentile(gaps, 50) < mean / 5  # of exponential gaps: 0.69 of the mean
    assert percentile(gaps, 99) > 10 * mean  # and 4.6 times


def test_a_seed_makes_the_same_work_and_another_seed_other_work(days):
    assert synthesize(2, seed=0) == days != synthesize(2, seed=1)


def test_more_days_have_more_sessions_and_fewer_days_the_first_of_them(days):
    assert len(synthesize(4)) == 2 * len(days)
    assert synthesize(1) == [session for session in days if session.start < WINDOW / 2]


def test_dense_cells_are_short_and_as_long_in_all(days):
    dense = synthesize(2, dense=True)
    cells = [cell for session in dense for cell in session.cells]
    assert len(dense) == len(days) and len(cells) > 50 * sum(len(session.cells) for session in days)
    assert max(cell.duration for cell in cells) <= 20


def test_a_replay_of_it_comes_to_the_same_figures_each_time(days):
    rules = read_rules("elastic:120", Leases().policy(), Costs(0.5, 0.1))
    assert play(days, 64, 8, rules) == play(days, 64, 8, rules)
