"""What comes back of a state: into the very objects that the cell has made anew, wherever they can be filled."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from gateway import elastic
from gateway.pod.elastic import saving


def again(folder: Path, saved: dict[str, Any], fresh: dict[str, Any]) -> dict[str, Any]:
    """``fresh``, filled with what was ``saved`` of the same names."""
    saving.save(folder / "state", saving.contents(saved))
    return {name: saving.fill(fresh[name], kind, value) for name, (kind, value) in saving.load(folder / "state").items()}


def test_containers_are_filled_in_place_and_other_values_replaced(tmp_path: Path) -> None:
    fresh: dict[str, Any] = {"history": [], "best": {}, "seen": set(), "step": 0, "name": None}
    found = again(tmp_path, {"history": [1, 2], "best": {"loss": 0.5}, "seen": {3}, "step": 7, "name": "x"}, fresh)
    assert found == {"history": [1, 2], "best": {"loss": 0.5}, "seen": {3}, "step": 7, "name": "x"}
    assert all(found[name] is fresh[name] for name in ("history", "best", "seen"))


def test_whatever_has_a_state_dict_is_filled_by_it(tmp_path: Path) -> None:
    class Model:
        def __init__(self) -> None:
            self.weight = 0.0

        def state_dict(self) -> dict[str, float]:
            return {"weight": self.weight}

        def load_state_dict(self, state: dict[str, float]) -> None:
            self.weight = state["weight"]

    trained, fresh = Model(), Model()
    trained.weight = 2.5
    assert again(tmp_path, {"model": trained}, {"model": fresh})["model"] is fresh
    assert fresh.weight == 2.5


def test_arrays_are_filled_in_place(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    fresh = numpy.zeros(3)
    assert again(tmp_path, {"a": numpy.arange(3.0)}, {"a": fresh})["a"] is fresh
    assert fresh.tolist() == [0, 1, 2]


def test_tensors_and_optimizers_come_back_as_they_were(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is 5 GB and no part of the test extra: pip install torch")

    def make() -> dict[str, Any]:
        model = torch.nn.Linear(2, 1)
        return {"model": model, "optimizer": torch.optim.Adam(model.parameters()), "mean": torch.zeros(2), "weights": model.weight}

    trained, fresh = make(), make()
    trained["model"](torch.ones(1, 2)).sum().backward()
    trained["optimizer"].step()
    trained["mean"] += 1
    found = again(tmp_path, trained, fresh)
    assert all(found[name] is fresh[name] for name in fresh)
    assert torch.equal(fresh["model"].weight, trained["model"].weight)
    assert fresh["optimizer"].state_dict()["state"][0]["step"] == 1


def test_a_name_that_a_state_needs_itself_is_refused() -> None:
    with pytest.raises(TypeError, match="choose another"):
        elastic.State(commit=1)


def test_a_value_that_can_t_be_pickled_leaves_the_older_file_as_it_was(tmp_path: Path) -> None:
    saving.save(tmp_path / "state", {"a": 1})
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        saving.save(tmp_path / "state", {"a": lambda: 1})
    assert saving.load(tmp_path / "state") == {"a": 1}
