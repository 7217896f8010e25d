"""Lost workers end a burst where nothing comes of going on, and never because there have been many."""

from __future__ import annotations

import random

import pytest

from gateway.protocol.losses import MOST_IN_PLACE, MOST_UNSAVED, Losses

EVERY = 300  # steps between two saves


def story(dies, *, restores: bool = True, loops: bool = True, most: int = 2000) -> tuple[int, str]:
    """``(losses, why it ended)`` of a cell that commits each step. ``dies(start)``: at which step workers that begin at ``start`` are lost,
    which is never done. ``restores``: its inner loop goes on where it was saved, not at its beginning."""
    losses, saved = Losses(), 0
    losses.saved("step 1" if loops and restores else "epoch 1" if loops else "")  # at the first commit
    for count in range(most):
        begun = saved if restores else 0
        end = dies(begun)
        for step in range(begun + EVERY, end, EVERY):
            saved = step
            losses.saved(f"step {step}" if loops and restores else "epoch 1" if loops else "")
        if why := losses.too_many():
            return count + 1, why
        losses.lost()
    return most, ""


@pytest.mark.parametrize("step", [1, 20, EVERY - 1, EVERY, EVERY + 1, 5 * EVERY + 7])
def test_one_that_always_dies_at_the_same_step_is_ended_soon_however_far_it_has_come_before(step):
    for loops in (True, False):
        count, why = story(lambda start: step, loops=loops)
        assert count <= MOST_UNSAVED + 2
        assert "and nothing was saved in between" in why


def test_one_that_dies_at_the_same_step_of_a_loop_that_begins_anew_is_ended_though_it_saves_each_time():
    count, why = story(lambda start: 5 * EVERY + 7, restores=False)
    assert count == MOST_IN_PLACE + 1
    assert why == f"Workers were lost {count} times, and came no farther in between than epoch 1."


@pytest.mark.parametrize("seed", range(20))
def test_workers_may_be_lost_as_often_as_one_likes_if_they_come_farther_in_between(seed):
    draw = random.Random(seed)
    assert story(lambda start: start + draw.randrange(EVERY + 1, 10 * EVERY)) == (2000, "")
    lucky = [True, False, False]  # two of three are lost before anything is saved
    turns = iter([each for _ in range(667) for each in lucky])
    assert story(lambda start: start + (EVERY + 1 if next(turns) else 5)) == (2000, "")


def test_where_no_loops_are_known_every_save_is_progress():
    assert story(lambda start: start + EVERY + 1, loops=False) == (2000, "")
