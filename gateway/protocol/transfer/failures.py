"""An exception on its way home: the real one where it can be loaded there, and its text in any case.

The frames that are shown are the user's: from the cell on, none of ours. It must never raise instead of what it tells.
"""

from __future__ import annotations

import traceback
import types
from typing import Any, Optional

MAX_FRAMES = 200
MAX_CHAIN = 10
MODULE = "rank"  # the name of the module whose frames a rank's are shown as
MAX_NAME = 2000  # characters of class and message, where an exception is told of
MAX_TEXT = 100_000  # characters of a traceback as text


class RankError(Exception):
    """Stands for a rank's exception whose class can't be loaded here. ``str`` is the original's name and message."""


def steps(error: BaseException, first: str) -> list[tuple[str, str, int, int]]:
    """``(file, function, line, function's first line)`` of each frame from the first one in file ``first`` on; all where it has none."""
    codes = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    found = [(code.co_filename, code.co_name, line, code.co_firstlineno) for code, line in codes]
    start = next((at for at, step in enumerate(found) if step[0] == first), 0)
    return found[start:][-MAX_FRAMES:]


def chain(error: BaseException) -> list[tuple[BaseException, str]]:
    """``error`` and what it came from, ``[(exception, "" | "cause" | "context")]``; the word says what the one before calls it."""
    found: list[tuple[BaseException, str]] = [(error, "")]
    while len(found) < MAX_CHAIN:
        last = found[-1][0]
        if last.__cause__ is not None:
            following, word = last.__cause__, "cause"
        elif last.__context__ is not None and not last.__suppress_context__:
            following, word = last.__context__, "context"
        else:
            break
        if any(following is known for known, _ in found):
            break
        found.append((following, word))
    return found


def text(error: BaseException, first: str) -> str:
    """The traceback as Python prints it, of the user's frames."""
    parts = []
    for exc, word in reversed(chain(error)):
        shown = traceback.TracebackException(type(exc), exc, _cut(exc.__traceback__, first), lookup_lines=True)
        shown.__cause__ = shown.__context__ = None
        parts.append("".join(shown.format()))
        if word == "cause":
            parts.append("\nThe above exception was the direct cause of the following exception:\n\n")
        elif word == "context":
            parts.append("\nDuring handling of the above exception, another exception occurred:\n\n")
    return shortened("".join(parts), MAX_TEXT)


def shortened(text: str, most: int) -> str:
    """Its beginning and its end, and how much is left out between them."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} … ({len(text) - most} characters are left out here) … {text[len(text) - most // 2 :]}"


def _cut(tb: Optional[types.TracebackType], first: str) -> Optional[types.TracebackType]:
    at = tb
    while at is not None and at.tb_frame.f_code.co_filename != first:
        at = at.tb_next
    return at or tb


def named(error: BaseException) -> str:
    kind = type(error).__name__
    try:
        message = str(error)
    except (Exception, SystemExit) as exc:
        message = f"<its message can't be shown: {type(exc).__name__}>"
    return shortened(f"{kind}: {message}" if message else kind, MAX_NAME)


def traceback_of(frames: list[tuple[str, str, int, int]]) -> Optional[types.TracebackType]:
    """A traceback that shows ``frames``: real frames of code that does nothing, under the names and lines of the other process."""
    result = None
    for file, function, line, first in reversed(frames):
        first = min(first, line)  # where the one is line 0, or a text of its own
        code = compile("\n" * (line - first) + "raise ZeroDivisionError", file, "exec").replace(co_name=function, co_firstlineno=first)
        try:
            exec(code, {"__name__": MODULE, "__file__": file})
        except ZeroDivisionError as exc:
            made = exc.__traceback__.tb_next if exc.__traceback__ else None
            if made is not None:
                result = types.TracebackType(result, made.tb_frame, made.tb_lasti, line)
    return result


def linked(parts: list[tuple[BaseException, str, Any]]) -> BaseException:
    """The first of ``[(exception, word as in chain, frames)]``, with the others as its causes."""
    for (exc, _, frames), following in zip(parts, [*parts[1:], None]):
        exc.__traceback__ = traceback_of([tuple(frame) for frame in frames])
        if following is None:
            exc.__suppress_context__ = True
        elif following[1] == "cause":
            exc.__cause__ = following[0]
        else:
            exc.__context__ = following[0]
    return parts[0][0]
