"""Every knob: it says what it means, and refuses what can't hold."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from traitlets import Enum, TraitError
from traitlets.config import Config, Configurable

from gateway.leases.policy import Policy
from gateway.protocol.model import Spec
from gateway.settings import Bytes, Choice, Count, ElasticGateway, Leases, LocalBackend, Seconds, SimulatedGpu, files, machine_config

CLASSES = [ElasticGateway, Leases, SimulatedGpu, LocalBackend]
KNOBS = [(cls, name, trait) for cls in CLASSES for name, trait in cls.class_traits(config=True).items()]
CHOICES = [(cls, name, trait) for cls, name, trait in KNOBS if isinstance(trait, Enum)]
NUMBERS = [(cls, name, trait) for cls, name, trait in KNOBS if isinstance(trait, Seconds | Count | Bytes)]


@pytest.mark.parametrize(("cls", "name", "trait"), KNOBS, ids=[f"{cls.__name__}.{name}" for cls, name, _ in KNOBS])
def test_every_knob_says_its_unit_its_default_and_what_none_and_0_mean(cls: type, name: str, trait: object) -> None:
    text = " ".join(trait.help.split())  # type: ignore[attr-defined]
    assert text.endswith("."), text
    if isinstance(trait, Seconds | Count | Bytes):
        assert any(unit in text for unit in ("Seconds", "seconds", "Bytes", "bytes", "How many", "number"))
        if trait.allow_none:
            assert "None" in text, "what None means"
        if not trait.min:
            assert "0:" in text, "what 0 means"
        assert "efault" in text, "why this default"


@pytest.mark.parametrize(("cls", "name", "trait"), NUMBERS, ids=[f"{cls.__name__}.{name}" for cls, name, _ in NUMBERS])
def test_numbers_that_can_not_hold_are_refused_by_name(cls: type[Configurable], name: str, trait: object) -> None:
    for value in (-1, float("nan"), float("inf"), "soon"):
        with pytest.raises(TraitError, match=name):
            cls(**{name: value})
    if not trait.allow_none:  # type: ignore[attr-defined]
        with pytest.raises(TraitError, match=name):
            cls(**{name: None})


@pytest.mark.parametrize(("cls", "name", "trait"), CHOICES, ids=[f"{cls.__name__}.{name}" for cls, name, _ in CHOICES])
def test_a_word_that_is_none_of_the_few_is_refused_by_name_with_those_that_are(cls: type[Configurable], name: str, trait: Choice) -> None:
    for value in ("nonesuch", 3, None):
        with pytest.raises(TraitError) as refused:
            cls(**{name: value})
        assert f"{cls.__name__}.{name}" in str(refused.value)
        assert all(repr(word) in str(refused.value) for word in trait.values)


def test_none_can_be_said_on_the_command_line() -> None:
    assert Leases(config=Config(Leases={"max_hold": Leases.max_hold.from_string("None")})).max_hold is None


def test_the_lease_books_rules_are_what_is_set() -> None:
    rules = Leases(idle_timeout=7.0, max_hold=9.0).policy()
    assert (rules.idle_timeout, rules.max_hold) == (7.0, 9.0)
    assert {field.name for field in dataclasses.fields(Policy)} - {"quiet"} <= set(Leases.class_trait_names(config=True))


@pytest.mark.parametrize("setting", [{"priority": 1001}, {"priority": "high"}, {"weight": -1}, {"weight": True}, {"quiet_hours": "late"}])
def test_other_lease_rules_that_can_not_hold_are_refused_by_name(setting: dict[str, object]) -> None:
    with pytest.raises(TraitError, match=next(iter(setting))):
        Leases(**setting)


def test_what_a_supervisor_is_told_is_declared_once() -> None:
    local = LocalBackend()
    for name in ("journal_bytes", "window_bytes", "session_seconds", "stall_seconds", "notice_after"):
        assert getattr(local, name) == getattr(Spec, name)


def test_a_gateways_name_fits_into_file_names_and_labels() -> None:
    for name in ("", "Upper", "a/b", "-a", "a-", "x" * 64, "ünï"):
        with pytest.raises(TraitError, match="small letters"):
            ElasticGateway(name=name)


def test_the_machines_configuration_is_read_from_jupyters_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = tmp_path / "low", tmp_path / "high"
    low.mkdir()
    high.mkdir()
    (low / "jupyter_elastic_gateway_config.json").write_text('{"Leases": {"idle_timeout": 1, "min_hold": 2}}')
    (high / "jupyter_elastic_gateway_config.py").write_text("c.Leases.idle_timeout = 3")
    monkeypatch.setattr(files, "jupyter_config_path", lambda: [str(high), str(low)])
    leases = Leases(config=machine_config())
    assert (leases.idle_timeout, leases.min_hold) == (3, 2)
