"""A run's limit of time: one of many alike cases comes after all that is tested once, and is left out, with a word, when the time is up."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable
from typing import Any

import pytest

ENDS = "TESTS_END"  # environment: when the time is up, in seconds since 1970
MARK = "exhaustive"


def cases(every: Iterable[tuple[Any, ...]], always: Collection[tuple[Any, ...]]) -> list[Any]:
    """For ``parametrize``: those of ``always`` are run whatever the time."""
    return [pytest.param(*each, marks=[] if each in always else getattr(pytest.mark, MARK)) for each in every]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker(MARK) is not None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker(MARK) and time.time() > float(os.environ.get(ENDS) or "inf"):
        pytest.skip(f"the time of this run is up (TESTS_MINUTES): `bash .ci/test -m {MARK} tests` runs all of these")
