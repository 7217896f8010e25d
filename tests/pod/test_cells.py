"""Which cells wait for a GPU: what could touch one does, what provably can't doesn't."""

from __future__ import annotations

import pytest

from gateway.pod.cells.session import Session, Verdict

from .cells_more import NOTEBOOKS, SNEAKIER
from .cells_tables import EVERYDAY, SNEAKY


def judge(cells: list[str]) -> Verdict:
    """The verdict on the last cell of a session."""
    session = Session()
    for cell in cells[:-1]:
        session.ran(cell)
    return session.classify(cells[-1])


@pytest.mark.parametrize("cells", SNEAKY.values(), ids=SNEAKY.keys())
def test_a_cell_that_could_touch_a_gpu_waits_for_one(cells: list[str]) -> None:
    assert judge(cells).needs_gpu


@pytest.mark.parametrize("cells", EVERYDAY.values(), ids=EVERYDAY.keys())
def test_a_cell_that_cannot_touch_a_gpu_never_waits(cells: list[str]) -> None:
    assert not judge(cells).needs_gpu, judge(cells).why


@pytest.mark.parametrize("cells", SNEAKIER)
def test_there_is_no_way_around(cells: list[str]) -> None:
    assert judge(cells).needs_gpu


@pytest.mark.parametrize("cells", NOTEBOOKS)
def test_a_notebook_waits_only_for_its_framework(cells: list[str]) -> None:
    session = Session()
    for cell in cells:
        verdict = session.classify(cell)
        assert "torch" in cell or "model" in cell or not verdict.needs_gpu, verdict.why
        session.ran(cell)
