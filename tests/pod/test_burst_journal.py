"""What an agent writes down, also where there is no room for it."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator

import pytest

from gateway.pod.burst.journal import Journal


@pytest.fixture
def files_may_have() -> Iterator[Callable[[int], None]]:
    """How many bytes at most, for this process: as a quota has it."""
    usual, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (usual, most))


def events(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_is_displayed_counts_as_output(tmp_path):
    journal = Journal(tmp_path / "journal", 1000)
    for _ in range(10):
        journal.add("show", rank=0, msg_type="display_data", content={"data": {"text/plain": "x" * 400}})
    journal.end("ok")
    kinds = [event["t"] for event in events(tmp_path / "journal")]
    assert kinds == ["show", "show", "note", "note", "end"]


def test_on_a_full_disk_output_is_dropped_and_counted_and_the_rest_waits_for_room(tmp_path, files_may_have):
    journal = Journal(tmp_path / "journal", 1 << 20)
    journal.output(0, "stdout", "first")
    files_may_have((tmp_path / "journal").stat().st_size + 10)
    journal.output(0, "stdout", "is cut, and waits")
    journal.output(0, "stdout", "dropped")
    journal.add("step", text="far")
    files_may_have(1 << 20)
    journal.end("ok")
    told = [event.get("text", event["t"]) for event in events(tmp_path / "journal")]
    assert told[:3] == ["first", "is cut, and waits", "far"]
    assert told[3].startswith("7 characters of output were dropped") and told[4:] == ["end"]


def test_the_end_is_a_sentence_however_long_its_reason(tmp_path):
    journal = Journal(tmp_path / "journal", 1000)
    journal.end("error", "x" * 1_000_000)
    assert (tmp_path / "journal").stat().st_size < 1 << 16
