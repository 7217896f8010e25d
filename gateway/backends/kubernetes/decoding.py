"""JSON of any size from the API server, a piece at a time, so that nobody else on the event loop waits for it.

This module must never raise anything but ``ValueError`` for what it can't read.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

SLICE = 0.002  # seconds of work before others have their turn
_gap = re.compile(r"[\s,:]*").match
_decode = json.JSONDecoder().raw_decode


class Turns:
    """Gives the loop away whenever a slice of work is done. One for each task that works in a loop without waiting."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def __call__(self) -> None:
        if time.monotonic() - self._since > SLICE:
            await asyncio.sleep(0)
            self._since = time.monotonic()


class Lines:
    """Cuts a stream of chunks into lines; lines may be of any length, chunks end anywhere."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete now, without their ends."""
        first, *others = chunk.split(b"\n")
        self._rest.append(first)
        if not others:
            return []
        lines = [b"".join(self._rest), *others[:-1]]
        self._rest = [others[-1]]
        return [line for line in lines if line.strip()]


async def decode_list(body: bytes) -> dict[str, Any]:
    """The object that ``body`` is, ``items`` decoded one by one. Raises ``ValueError``."""
    turn, text, found = Turns(), body.decode(), {}
    try:
        at = _after(text, 0, "{")
        while text[at] != "}":
            key, at = _decode(text, at)
            if not isinstance(key, str):
                raise ValueError("A key isn't a text.")
            at = _gap(text, at).end()
            if key == "items" and text[at] == "[":
                found[key], at = [], _after(text, at, "[")
                while text[at] != "]":
                    item, at = _decode(text, at)
                    found[key].append(item)
                    at = _gap(text, at).end()
                    await turn()
                at += 1
            else:
                found[key], at = _decode(text, at)
            at = _gap(text, at).end()
    except (IndexError, TypeError):
        raise ValueError("The JSON ends too early or isn't an object.") from None
    return found


def _after(text: str, at: int, bracket: str) -> int:
    at = _gap(text, at).end()
    if text[at] != bracket:
        raise ValueError(f"{bracket!r} is expected at {at}.")
    return _gap(text, at + 1).end()
