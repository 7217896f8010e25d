"""Which pods are workers, and when others take over: no committed step is lost by intention, and no cell begins twice unasked."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from gateway.burst.course import AGAIN, COURSE, LAST_WORDS, PATIENCE, PEER_SECONDS, SETTLE, Course, Ending, View
from gateway.protocol import burst
from gateway.protocol.losses import MOST_IN_PLACE, MOST_UNSAVED


class Story:
    """A course, the clock, and what has been decided; ``view`` is what the cluster says."""

    def __init__(self, *pods: int, least: int = 2, wanted: int = 2, restartable: bool = False) -> None:
        self.restartable = restartable
        self.course, self.at = Course(restartable), 100.0
        self.events: list[tuple[dict[str, Any], int | None]] = []
        self.view = View(frozenset(), {}, least, wanted)
        self.ending: Ending | None = None
        self.join(*pods)

    def join(self, *pods: int) -> list[str]:
        for pod in pods:
            self.tell({"t": COURSE, "do": "know", "name": f"pod-{pod}"})
        self.view = replace(self.view, usable=self.view.usable | set(pods))
        return self.turn()

    def lose(self, *pods: int) -> list[str]:
        self.view = replace(self.view, usable=self.view.usable - set(pods), lost={**self.view.lost, **dict.fromkeys(pods, "It is gone.")})
        return self.turn()

    def want(self, wanted: int, *usable: int) -> list[str]:
        self.view = replace(self.view, wanted=wanted, usable=frozenset(usable) if usable else self.view.usable)
        return self.turn()

    def tell(self, event: dict[str, Any], pod: int | None = None) -> None:
        self.events.append((event, pod))
        self.course.apply(event, pod)

    def say(self, kind: str, *pods: int, **fields: Any) -> list[str]:
        """A word of ranks of the group that begins next, else of the one that runs."""
        crew = self.course.next or self.course.now
        assert crew is not None
        for pod in pods:
            self.tell({"t": kind, "group": fields.get("group", crew.number), **fields}, pod)
        return self.turn()

    def turn(self, seconds: float = 0.0) -> list[str]:
        self.at += seconds
        done = []
        while (step := self.course.decide(self.view, self.at)) is not None:
            if isinstance(step, Ending):
                self.ending = step
                return [*done, f"over: {step.outcome}"]
            done.append(step["do"])
            self.tell(step)
        return done

    @property
    def working(self) -> list[int]:
        return self.course.now.pods if self.course.now is not None else []

    def commit(self) -> None:
        """The cell has a commit, and the first is saved."""
        assert self.course.now is not None
        group = self.course.now.number
        for pod in self.working:
            self.tell({"t": burst.COMMITS, "group": group}, pod)
        self.tell({"t": burst.SAVED, "group": group, "file": f"state.{group}.1", "text": "step 1"}, self.working[0])
        self.turn()

    def leave(self) -> list[str]:
        """All come to the commit at which they leave, and the state of that is saved."""
        assert self.course.now is not None
        crew = self.course.now
        for number, pod in enumerate(crew.pods):
            self.tell({"t": burst.AT, "group": crew.number, "asked": self.course.asked, "commits": 7 + number}, pod)
        done = self.turn()
        if self.course.until is None:
            return done
        self.tell({"t": burst.SAVED, "group": crew.number, "file": f"state.{crew.number}.9", "text": "step 9"}, crew.pods[0])
        for pod in crew.pods:
            self.tell({"t": burst.LEFT, "group": crew.number}, pod)
        return done + self.turn()


def test_workers_begin_once_there_are_as_many_as_there_must_be() -> None:
    story = Story(0)
    assert story.working == []
    assert story.join(1) == ["group", "go"]
    assert story.working == [0, 1]
    assert story.course.orders(1)["groups"][0]["go"] == {"state": None}


def test_those_for_whom_there_are_gpus_at_once_are_waited_for_but_not_for_ever() -> None:
    story = Story(wanted=3)
    story.view = replace(story.view, coming=1)
    assert story.join(0, 1) == []
    assert story.turn(SETTLE) == ["group", "go"]


def test_more_workers_take_over_at_a_commit_that_is_the_same_for_all() -> None:
    story = Story(0, 1)
    story.commit()
    story.want(3)
    assert story.join(2) == ["group"]
    assert story.working == [0, 1], "the others work on until all are ready"
    assert "go" not in story.course.orders(2)["groups"][0]
    assert story.say(burst.READY, 0, 1) == []
    assert story.say(burst.READY, 2) == ["ask"]
    assert story.leave() == ["answer", "go"]
    assert story.course.orders(2)["groups"][0]["go"] == {"state": "state.1.9"}
    assert (story.working, story.course.orders(0)["soon"]) == ([0, 1, 2], False)


def test_all_leave_at_the_commit_of_the_one_that_was_farthest() -> None:
    story = Story(0, 1)
    story.commit()
    story.want(3)
    story.join(2)
    story.say(burst.READY, 0, 1, 2)
    group = story.course.now.number  # type: ignore[union-attr]
    for pod, commits in ((0, 12), (1, 11)):
        story.tell({"t": burst.AT, "group": group, "asked": 1, "commits": commits}, pod)
    assert story.turn() == ["answer"]
    assert story.course.orders(1)["groups"][0]["until"] == 12


def test_fewer_workers_are_those_that_stay_and_the_others_are_free_afterwards() -> None:
    story = Story(0, 1, 2, least=1, wanted=3)
    story.commit()
    assert story.want(2, 0, 2) == ["group"]
    story.say(burst.READY, 0, 2)
    story.leave()
    assert (story.working, story.course.orders(1)["free"]) == ([0, 2], True)


def test_without_a_commit_the_number_of_workers_stays_and_a_lost_one_ends_the_burst() -> None:
    story = Story(0, 1)
    story.want(3)
    assert story.join(2) == []
    assert story.lose(1) == []
    assert story.turn(LAST_WORDS) == ["over: error"]
    assert story.ending is not None and story.ending.message == "It is gone."


def test_who_lets_it_begin_anew_has_it_begin_anew_without_a_commit() -> None:
    story = Story(0, 1, restartable=True)
    story.want(3)
    story.join(2)
    assert story.say(burst.READY, 0, 1, 2) == ["go"]
    assert story.working == [0, 1, 2]
    assert story.lose(0) == ["end", "group", "go"]
    assert story.course.orders(2)["groups"][0]["go"] == {"state": None}


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_lost_worker_whichever_costs_what_was_done_since_the_last_save(rank: int) -> None:
    story = Story(0, 1, 2, wanted=3)
    story.commit()
    assert story.lose(rank) == ["end", "group", "go"]
    assert story.working == [pod for pod in (0, 1, 2) if pod != rank]
    assert story.course.orders(story.working[0])["groups"][0]["go"] == {"state": "state.1.1"}
    assert story.course.whence() == "from its last save (step 1)"


def test_with_fewer_than_the_least_those_that_are_left_wait_for_another() -> None:
    story = Story(0, 1)
    story.commit()
    assert story.lose(0) == ["end"]
    assert story.course.orders(1)["free"]
    assert story.join(2) == ["group", "go"]
    assert story.working == [1, 2]


def test_a_pod_that_is_told_to_end_leaves_at_a_commit_and_nothing_is_lost() -> None:
    story = Story(0, 1, 2, wanted=3)
    story.commit()
    story.tell({"t": burst.LEAVING}, 1)
    assert story.want(3, 0, 2) == ["group"]
    assert story.say(burst.READY, 0, 2) == ["ask"]
    assert story.leave() == ["answer", "go"]
    assert story.course.orders(1) == {"groups": [], "free": True, "leaving": True, "soon": False}


def test_one_of_the_least_that_is_told_to_end_leaves_at_a_commit_and_the_others_wait_for_another() -> None:
    story = Story(0, 1)
    story.commit()
    story.tell({"t": burst.LEAVING}, 0)
    assert story.want(2, 1) == ["ask"]
    assert story.leave() == ["answer", "end"]
    assert story.join(2) == ["group", "go"]
    assert story.course.orders(2)["groups"][0]["go"] == {"state": "state.1.9"}


def test_those_who_were_to_take_over_and_are_gone_are_replaced_while_the_others_work_on() -> None:
    story = Story(0, 1)
    story.commit()
    story.want(3)
    story.join(2)
    assert story.lose(2) == ["drop"]
    assert story.working == [0, 1]
    assert story.join(3) == ["group"]


def test_who_comes_to_no_commit_is_not_waited_for_and_is_asked_again_later() -> None:
    story = Story(0, 1)
    story.commit()
    story.want(3)
    story.join(2)
    story.say(burst.READY, 0, 1, 2)
    story.tell({"t": burst.AT, "group": 1, "asked": 1, "commits": 7}, 0)
    assert story.turn() == []
    assert story.turn(PATIENCE) == ["answer"]
    assert story.course.orders(0)["groups"][0] | {"process": 0} == {
        "number": 1, "rank": 0, "pods": [0, 1], "go": {"state": None}, "asked": 1, "open": False, "until": None, "process": 0,
    }  # fmt: skip
    assert story.turn() == []
    assert story.turn(AGAIN) == ["ask"]


def test_one_that_is_through_ends_the_question() -> None:
    story = Story(0, 1)
    story.commit()
    story.want(3)
    story.join(2)
    story.say(burst.READY, 0, 1, 2)
    assert story.say(burst.DONE, 0, group=1) == ["answer"]
    assert story.course.until is None
    assert story.say(burst.DONE, 1, group=1) == ["over: ok"]


def test_the_cells_own_failure_ends_it_and_the_first_is_the_cause() -> None:
    story = Story(0, 1)
    story.commit()
    story.say(burst.FAILED, 0, rank=0, name="ConnectionError: closed by peer", at=4.0)
    story.say(burst.FAILED, 1, rank=1, name="ValueError: boom", at=5.0)
    assert story.turn(LAST_WORDS) == ["over: error"]
    assert story.ending is not None and story.ending.message == "Rank 1 failed: ValueError: boom"


def test_who_only_misses_another_is_given_time_until_that_is_seen_as_gone() -> None:
    story = Story(0, 1, 2, wanted=3)
    story.commit()
    assert story.say(burst.FAILED, 0, rank=0, name="RuntimeError: Connection closed by peer", at=4.0) == []
    assert story.turn(PEER_SECONDS - 1) == []
    assert story.lose(2) == ["end", "group", "go"]
    story.say(burst.FAILED, 0, rank=0, name="RuntimeError: Connection closed by peer", at=5.0)
    assert story.turn(PEER_SECONDS) == ["over: error"], "nobody is missing"


def test_workers_that_are_lost_again_and_again_end_it() -> None:
    story = Story(0, 1, restartable=True)
    for number in range(MOST_UNSAVED):
        assert story.lose(number) == ["end"]
        assert story.join(number + 2) == ["group", "go"]
    assert story.lose(MOST_UNSAVED) == ["over: error"]
    assert story.ending is not None and "lost 4 times, and nothing was saved in between" in story.ending.message


def test_many_losses_end_it_only_where_it_comes_no_farther_in_between() -> None:
    for far in (True, False):
        story = Story(0, 1)
        story.commit()
        for number in range(3 * MOST_IN_PLACE):
            if story.lose(number) != ["end"]:
                break
            assert story.join(number + 2) == ["group", "go"]
            group = story.course.now.number  # type: ignore[union-attr]
            story.say(burst.COMMITS, *story.working)
            story.say(burst.SAVED, story.working[0], file=f"state.{group}.1", text=f"step {number if far else 1}")
        if far:
            assert story.ending is None
        else:
            assert story.ending is not None and "lost 11 times, and came no farther in between than step 1." in story.ending.message


def test_words_of_a_group_that_is_over_change_nothing() -> None:
    story = Story(0, 1, 2, wanted=3)
    story.commit()
    story.lose(2)
    story.say(burst.SAVED, 0, group=1, file="state.1.7", text="late")
    story.say(burst.DONE, 0, group=1)
    assert story.course.saved == ("state.1.1", "step 1") and not story.course.now.done  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(200))
def test_told_the_same_events_again_it_stands_where_it_stood_and_no_two_groups_ever_work_at_once(seed: int) -> None:
    draw = random.Random(seed)
    story = Story(0, 1, least=draw.choice([1, 2]), wanted=2, restartable=draw.random() < 0.2)
    newest = 1
    for _ in range(40):
        if story.ending is not None:
            break
        what, crew = draw.randrange(9), story.course.now
        if what == 0 and newest < 12:
            newest += 1
            story.join(newest)
        elif what == 1 and draw.random() < 0.4 and story.view.usable:
            story.lose(draw.choice(sorted(story.view.usable)))
        elif what == 2:
            story.want(draw.randrange(story.view.least, 5))
        elif what == 3 and crew is not None and not story.course.commits:
            story.commit()
        elif what in (4, 5) and story.course.next is not None:
            story.say(burst.READY, *story.course.next.pods)
        elif what in (6, 7) and story.course.open:
            story.leave()
        else:
            story.turn(draw.choice([0.1, 1.0, 6.0]))
        again = Course(story.restartable)
        for event, pod in story.events:
            again.apply(event, pod)
        for pod in range(newest + 1):
            mine, orders = story.course.orders(pod), again.orders(pod)
            assert mine == orders
            assert sum("go" in order for order in orders["groups"]) <= 1
        assert (again.saved, again.commits) == (story.course.saved, story.course.commits)


def test_nobody_is_asked_to_leave_once_a_rank_of_a_pod_is_through_and_who_waits_goes_on() -> None:
    story = Story(0, 1)
    story.commit()
    story.want(3)
    story.join(2)
    assert story.say(burst.READY, 0, 1, 2) == ["ask"]
    story.say(burst.AT, 0, group=1, asked=1, commits=4)
    assert story.say(burst.THROUGH, 1, group=1) == ["answer"]
    assert story.course.orders(0)["groups"][0]["until"] is None
    assert story.turn(AGAIN + PATIENCE) == []
    assert story.say(burst.DONE, 0, 1, group=1) == ["over: ok"]
