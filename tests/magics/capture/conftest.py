"""A notebook and a place where its cells run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.magics.capture.elsewhere import Ranks
from tests.magics.capture.notebook import Notebook


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    ranks = Ranks()
    yield ranks
    ranks.close()


@pytest.fixture
def notebook(ranks: Ranks) -> Notebook:
    return Notebook(ranks)
