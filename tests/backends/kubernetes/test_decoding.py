"""JSON in pieces."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.backends.kubernetes import decoding
from gateway.backends.kubernetes.decoding import Lines, decode_list

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=list(HealthCheck))  # a busy machine draws slowly
@given(
    st.fixed_dictionaries({"kind": st.text(), "items": st.none() | st.lists(VALUES, max_size=4), "metadata": VALUES}),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_a_list_is_decoded_as_json_is(whole: dict, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(whole, indent=indent, ensure_ascii=ascii_only) + "\n"
    assert asyncio.run(decode_list(text.encode())) == whole


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"items": [', b'{"items": [{}', b'{"a": 1', b'{"a"', b"<html>", b"\xff", b"{1: 2}"])
def test_what_is_no_whole_object_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        asyncio.run(decode_list(body))


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"") or b"x"), max_size=6), st.integers(1, 7))
def test_lines_come_out_whole_however_the_stream_is_cut(lines: list[bytes], size: int) -> None:
    stream, cutter, found = b"".join(line + b"\n" for line in lines), Lines(), []
    for start in range(0, len(stream), size):
        found += cutter.feed(stream[start : start + size])
    assert found == [line for line in lines if line.strip()]


def test_an_unfinished_last_line_is_never_given_out() -> None:
    assert Lines().feed(b'{"a": 1}\n{"b"') == [b'{"a": 1}']


def test_others_have_their_turn_while_a_long_list_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "SLICE", 0.0)
    body = json.dumps({"items": [{"n": n} for n in range(100)]}).encode()

    async def story() -> int:
        turns, decoded = 0, asyncio.create_task(decode_list(body))
        while not decoded.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert asyncio.run(story()) >= 100
