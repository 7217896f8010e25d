"""A rank with another Python or other packages says so before it loads anything."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

from gateway.protocol.transfer import versions


def sent_as(notebook, **facts) -> list[bytes]:
    """A cell as another Python would have sent it."""
    capsule = notebook.pack("x = 1")
    header = json.loads(bytes(capsule.blobs[0]))
    header["facts"].update(facts)
    return [json.dumps(header).encode(), *map(bytes, capsule.blobs[1:])]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"python": "3.8.1"}, f"Python: the notebook has 3.8.1, the rank {sys.version.split()[0]}"),
        ({"cloudpickle": "9.0.0"}, "cloudpickle: the notebook has 9.0.0"),
        ({"packages": {"numpy": "0.9.1"}}, "numpy: the notebook has 0.9.1"),
        ({"packages": {"not_there_at_all": "1.0"}}, "not_there_at_all: the notebook has 1.0, the rank has none"),
        ({"format": 0}, "format: the notebook has 0"),
    ],
)
@pytest.mark.case("D13")
def test_what_is_known_to_break_is_refused_with_both_sides(notebook, facts, said):
    pytest.importorskip("numpy")
    answer = notebook.ranks.run(sent_as(notebook, **facts))
    assert said in answer.refused and "notebook's own image" in answer.refused


@pytest.mark.case("D13")
def test_it_can_be_tried_in_spite_of_that(notebook):
    answer = notebook.ranks.run(sent_as(notebook, cloudpickle="9.0.0"), strict=False)
    assert answer.back and not answer.refused


@pytest.mark.case("D13")
def test_a_difference_in_the_small_is_only_told(notebook):
    major, minor, _ = sys.version.split()[0].split(".")
    found = versions.differences({**versions.facts([]), "python": f"{major}.{minor}.99"})
    assert [(item.name, item.fatal) for item in found] == [("Python", False)]
    assert notebook.ranks.run(sent_as(notebook, python=f"{major}.{minor}.99")).back


def test_the_same_versions_are_no_difference():
    pytest.importorskip("numpy")
    assert versions.differences(versions.facts(["numpy", "json", "zmq"])) == []


def test_packages_that_objects_come_from_are_told(notebook):
    pytest.importorskip("numpy")
    notebook.here("import numpy as np, decimal; a = [np.zeros(2)]; d = decimal.Decimal(1)")
    header = json.loads(bytes(notebook.pack("a, d").blobs[0]))
    assert set(header["facts"]["packages"]) == {"numpy"}


def test_what_the_user_installed_is_listed_for_the_ranks(tmp_path, monkeypatch):
    for name in ("old-1.0", "added_by_user-2.0", "beside-3.0"):
        (tmp_path / f"{name}.dist-info").mkdir()
    (tmp_path / "beside-3.0.dist-info" / "direct_url.json").write_text('{"url": "file:///home/me/beside"}')
    started = time.time()
    os.utime(tmp_path / "old-1.0.dist-info", (started - 100, started - 100))
    for name in ("added_by_user-2.0", "beside-3.0"):
        os.utime(tmp_path / f"{name}.dist-info", (started + 100, started + 100))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    found = versions.installed_since(started)
    assert found == [
        {"name": "added_by_user", "version": "2.0", "spec": "added_by_user==2.0"},
        {"name": "beside", "version": "3.0", "spec": ""},
    ]
    assert versions.missing(found) == []
    monkeypatch.setattr(sys, "path", [])
    assert versions.missing(found) == found


def test_a_container_began_before_now():
    assert 0 < versions.container_started() < time.time()
