"""Where loops go on after a commit, through ``elastic.State`` as cells use it, without a burst and in a pretended one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import elastic
from gateway.pod.elastic.member import Left, Member, join
from gateway.protocol import burst


class Line:
    """An agent that says what the test has it say."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.words: list[dict[str, Any]] = []
        self.answers: list[dict[str, Any]] = []

    def say(self, kind: str, **fields: Any) -> None:
        self.said.append((kind, fields))
        if kind == burst.AT and self.answers:
            self.words.append(self.answers.pop(0))

    def hear(self, wait: bool) -> dict[str, Any] | None:
        assert self.words or not wait, "it would wait for ever"
        return self.words.pop(0) if self.words else None

    def ask_to_leave(self, asked: int = 1, until: int | None = None) -> None:
        self.words.append({"t": burst.LEAVE, "asked": asked})
        self.answers.append({"t": burst.STAY, "asked": asked} if until is None else {"t": burst.UNTIL, "asked": asked, "commits": until})

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.said]

    def saved(self) -> str:
        return [fields["file"] for kind, fields in self.said if kind == burst.SAVED][-1]


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    yield
    join(None)


def member(folder: Path, start: str | None = None, rank: int = 0, world: int = 1, save_every: float = 1e9) -> Line:
    line = Line()
    join(Member(line, folder, start, rank, world, save_every))
    return line


def test_without_a_burst_a_cell_runs_alone_from_its_beginning() -> None:
    state = elastic.State(seen=[])
    for epoch in state.range("epoch", 2):
        for item in state.shard("item", "abc"):
            state.seen.append((epoch, item))
            state.commit()
    assert state.seen == [(0, "a"), (0, "b"), (0, "c"), (1, "a"), (1, "b"), (1, "c")]


def test_a_group_leaves_at_the_commit_that_it_is_told_and_the_next_goes_on_behind_it(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def cell(state: elastic.State) -> None:
        for epoch in state.range("epoch", 3):
            for step in state.range("step", 4):
                seen.append((epoch, step))
                state.commit()

    line = member(tmp_path)
    line.ask_to_leave(until=6)
    with pytest.raises(Left):
        cell(elastic.State())
    assert line.kinds() == [burst.COMMITS, burst.AT, burst.SAVED, burst.STEP, burst.SAVED]
    member(tmp_path, line.saved())
    cell(elastic.State())
    assert seen == [(epoch, step) for epoch in range(3) for step in range(4)]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.lists(st.integers(0, 4), min_size=1, max_size=3))
def test_however_often_a_group_leaves_each_iteration_of_nested_loops_is_done_once(
    tmp_path_factory: Any, runs: list[int], bounds: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("state")
    seen: list[tuple[int, ...]] = []

    def loop(state: elastic.State, at: tuple[int, ...]) -> None:
        if len(at) == len(bounds):
            seen.append(at)
            state.commit()
            return
        for index in state.range(f"loop {len(at)}", bounds[len(at)]):
            loop(state, (*at, index))

    start: str | None = None
    for commits in [*runs, 0]:
        line = member(folder, start)
        if commits:
            line.ask_to_leave(until=commits)
        try:
            loop(elastic.State(), ())
            break
        except Left:
            start = line.saved()
    expected: list[tuple[int, ...]] = [()]
    for bound in bounds:
        expected = [(*each, index) for each in expected for index in range(bound)]
    assert seen == expected


def test_a_commit_behind_the_inner_loop_closes_the_outer_iteration(tmp_path: Path) -> None:
    line = member(tmp_path, save_every=0)
    state = elastic.State()
    for _ in state.range("epoch", 1):
        for _ in state.range("step", 3):
            pass
        state.commit()
    member(tmp_path, line.saved())
    assert list(elastic.State().range("epoch", 5)) == [1, 2, 3, 4]


def test_a_loop_that_was_broken_off_begins_anew_the_next_time() -> None:
    state = elastic.State()
    for _ in state.range("step", 5):
        break
    assert list(state.range("step", 2)) == [0, 1]


def test_two_loops_of_one_name_inside_of_one_another_are_refused() -> None:
    state = elastic.State()
    for _ in state.range("step", 1):
        with pytest.raises(ValueError, match="give this one another name"):
            next(state.range("step", 1))


def test_a_rank_that_is_told_to_stay_goes_on_at_once(tmp_path: Path) -> None:
    line = member(tmp_path)
    line.ask_to_leave()
    state = elastic.State()
    for _ in state.range("step", 3):
        state.commit()
    assert line.kinds().count(burst.AT) == 1


def test_an_old_answer_is_no_answer_to_a_new_question(tmp_path: Path) -> None:
    line = member(tmp_path)
    line.words = [
        {"t": burst.LEAVE, "asked": 1}, {"t": burst.STAY, "asked": 1},
        {"t": burst.LEAVE, "asked": 2}, {"t": burst.UNTIL, "asked": 2, "commits": 1},
    ]  # fmt: skip
    with pytest.raises(Left):
        elastic.State().commit()


def test_a_cell_that_has_caught_its_leave_leaves_at_the_next_commit(tmp_path: Path) -> None:
    line = member(tmp_path)
    line.ask_to_leave(until=1)
    state = elastic.State()
    for _ in range(2):
        with pytest.raises(Left):
            state.commit()


def test_only_rank_0_saves_and_only_when_it_is_time(tmp_path: Path) -> None:
    first = member(tmp_path, rank=0, world=2)
    state = elastic.State()
    for _ in state.range("step", 3):
        state.commit()
    assert first.kinds().count(burst.SAVED) == 1
    second = member(tmp_path, rank=1, world=2)
    elastic.State().commit()
    assert second.kinds() == [burst.COMMITS]


def test_a_save_that_fails_is_told_and_ends_nothing(tmp_path: Path) -> None:
    line = member(tmp_path / "nowhere")
    elastic.State().commit()
    assert line.kinds() == [burst.COMMITS, burst.NOTE]
    assert "could not be saved: No such file" in line.said[-1][1]["text"]


def test_a_change_of_the_number_of_workers_is_told_to_the_cell(tmp_path: Path) -> None:
    line = member(tmp_path, world=2)
    elastic.State().commit()
    told: list[tuple[int, int]] = []
    member(tmp_path, line.saved(), world=2)
    elastic.State(on_resize=lambda before, now: told.append((before, now)))
    assert told == []
    member(tmp_path, line.saved(), world=4)
    elastic.State(on_resize=lambda before, now: told.append((before, now)))
    assert told == [(2, 4)]
