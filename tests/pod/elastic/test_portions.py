"""Which items a rank gets: all of them are somebody's, all ranks take equally many, and a change of their number loses none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pod.elastic.portions import portion


def rounds(items: Any, start: int, world: int) -> tuple[list[int], list[tuple[Any, ...]]]:
    """Where each round began, and what the ranks took in it."""
    taken = [list(portion(items, start, rank, world, seed=0)) for rank in range(world)]
    assert len({tuple(at for at, _ in each) for each in taken}) == 1, "all ranks take part in the same rounds"
    return [at for at, _ in taken[0]], list(zip(*([item for _, item in each] for each in taken), strict=True))


@given(st.integers(0, 30), st.integers(1, 7), st.integers(1, 7), st.integers(0, 5), st.booleans())
def test_a_change_of_their_number_in_the_middle_leaves_no_item_out(count: int, before: int, after: int, done: int, indexed: bool) -> None:
    items: Any = list(range(count)) if indexed else None
    begun, first = rounds(items or iter_of(count), 0, before)
    done = min(done, len(first))
    start = begun[done - 1] + before if done else 0
    _, second = rounds(items or iter_of(count), start, after)
    taken = [item for each in [*first[:done], *second] for item in each]
    assert set(taken) == set(range(count))
    assert len(taken) < count + before + after, "only a last round is filled up"


class iter_of:
    """Yields the same each time, and can't be indexed."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __iter__(self) -> Any:
        return iter(range(self._count))


def test_the_last_round_is_filled_up_from_the_beginning() -> None:
    assert rounds("abcde", 0, 3)[1] == [("a", "b", "c"), ("d", "e", "a")]
    assert rounds(iter_of(5), 0, 3)[1] == [(0, 1, 2), (3, 4, 0)]


def test_a_mapping_is_gone_through_by_its_keys() -> None:
    assert rounds({"a": 1, "b": 2}, 0, 2)[1] == [("a", "b")]


def test_a_loader_that_shuffles_does_so_alike_in_all_ranks_and_loads_each_batch_once() -> None:
    torch = pytest.importorskip("torch", reason="torch is 5 GB and no part of the test extra: pip install torch")
    loaded: list[int] = []

    class Data(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 12

        def __getitem__(self, index: int) -> int:
            loaded.append(index)
            return index

    loader = torch.utils.data.DataLoader(Data(), batch_size=2, shuffle=True)
    _, taken = rounds(loader, 0, 3)
    assert sorted(loaded) == sorted(int(item) for each in taken for batch in each for item in batch) == list(range(12))
    first, other = (next(portion(loader, 0, 0, 1, seed))[1] for seed in (1, 2))
    assert first.tolist() != other.tolist(), "each epoch shuffles anew"
