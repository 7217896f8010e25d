"""``%gpu``: what a user asks of the lease, and how it is told. It reads words, asks the supervisor, and prints a sentence.

It must never show a traceback for a word it doesn't know, and never decide anything about the lease.
"""

from __future__ import annotations

import re
from typing import Any, Optional

from ..protocol.durations import read_duration
from ..protocol.errors import SupervisorLost
from ..protocol.model import KernelState, LeaseState, Phase, Rung
from .supervisor import ask

USAGE = "%gpu · %gpu hold 30m · %gpu release · %gpu off · %gpu on · %gpu simulate 4GB"
LONGEST_HOLD = 366 * 86400.0  # seconds

_SIZE = re.compile(r"([\d.]+)(?:([kmgt])?(i)?b?)?", re.ASCII)


def gpu(line: str) -> None:
    """``%gpu`` says which GPU this kernel holds or waits for, and for how long.

    ``%gpu hold 30m``   keep the GPU that long even while no cell runs (s, m, h, d; ``0`` ends it)
    ``%gpu release``    give it back now; the next GPU cell asks for it again
    ``%gpu off``        no cell of this kernel asks for a GPU, until ``%gpu on``
    ``%gpu simulate 4GB``  only where GPUs are simulated: pretend to have that much GPU memory in use

    ``%%gpu`` and ``%%cpu`` on the first line of a cell say whether it needs a GPU, whatever it looks like.
    """
    do, fields = read(line)
    try:
        answer = ask(do, **fields)
    except SupervisorLost as exc:
        print(exc)
        return
    print(answer.get("message") or describe(answer))


def _given(argument: str) -> str:
    return f"{argument!r} isn't one" if argument else "none was given"


def read(line: str) -> tuple[str, dict[str, Any]]:
    """``(do, fields)`` of a request to the supervisor. Raises IPython's ``UsageError``, which is shown as one sentence."""
    word, *rest = line.split() or [""]
    argument = "".join(rest).lower()
    if word == "hold":
        length = duration(argument)
        if length is None:
            raise _usage(f"%gpu hold needs a time such as 90s, 30m, 2h or 1h30m, a year at most; {_given(argument)}.")
        return "hold", {"seconds": length}
    if word == "simulate":
        amount = size(argument)
        if amount is None:
            raise _usage(f"%gpu simulate needs an amount of memory such as 500MB or 4GB; {_given(argument)}.")
        return "simulate", {"bytes": amount}
    if argument or word not in ("", "status", "release", "on", "off"):
        raise _usage(f"%gpu doesn't know {line.strip()!r}. It knows: {USAGE}")
    if word in ("on", "off"):
        return "mode", {"mode": word}
    return word or "status", {}


def duration(text: str) -> Optional[float]:
    """Seconds of ``1h30m``, ``45s``, ``0``; None for anything else, and for more than a year."""
    length = read_duration(text)
    return length if length is not None and length <= LONGEST_HOLD else None


def size(text: str) -> Optional[int]:
    """Bytes of ``4GB``, ``512MiB``, ``2g``, ``4096``; None for anything else. GB are 1000³, GiB 1024³."""
    match = _SIZE.fullmatch(text)
    if not match:
        return None
    number, prefix, binary = match.groups()
    try:
        value = float(number) * (1024 if binary else 1000) ** (" kmgt".index(prefix) if prefix else 0)
    except ValueError:
        return None
    return int(value) if value < 1 << 50 else None


def describe(answer: dict[str, Any]) -> str:
    """One line for people from a supervisor's answer."""
    state = KernelState.from_json(answer.get("state") or {})
    lease = state.lease
    if not lease.count:
        return "This kernel leases no GPU: its cells never wait."
    parts = [_phase(lease, state.held, answer.get("place") or {})]
    if lease.hold_for > 0:
        parts.append(f"kept for {_time(lease.hold_for)} more")
    elif lease.phase == Phase.HOLDING and not lease.executing and lease.idle_for:
        parts.append(f"idle for {_time(lease.idle_for)}")
    if lease.parked_bytes:
        parts.append(f"{_bytes(lease.parked_bytes)} of GPU memory parked in this machine's memory")
    if state.simulated_bytes:
        parts.append(f"pretends to use {_bytes(state.simulated_bytes)} of GPU memory")
    parts += filter(None, (_rung(lease), lease.alarm))
    if lease.fatal:
        parts.append("what it had on the GPU is lost: restart the kernel")
    if answer.get("mode") == "off":
        parts.append("%gpu is off: no cell asks for a GPU until %gpu on")
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + "."


def install(shell: Any) -> None:
    shell.register_magic_function(gpu, "line", "gpu")


def _phase(lease: LeaseState, held: int, place: dict[str, Any]) -> str:
    count = "a GPU" if lease.count == 1 else f"{lease.count} GPUs"
    if lease.phase == Phase.HOLDING:
        return "holds " + " and ".join(lease.gpus) if lease.gpus else "there is no GPU to share here, so no cell waits for one"
    if lease.phase == Phase.RESUMING:
        return "coming back to " + (" and ".join(lease.gpus) or count)
    if lease.phase == Phase.PARKING:
        return "giving back " + (" and ".join(lease.gpus) or count)
    if lease.phase == Phase.WAITING:
        cells = f" with {held} cells" if held > 1 else ""
        where = f", place {place['position']} of {place.get('of', '?')}" if place.get("position") else ""
        expected = f", about {_time(place['expected'])} to go" if place.get("expected") else ""
        return f"waits for {count}{cells}{where}{expected}"
    if lease.phase == Phase.PARKED:
        return "holds no GPU now; its state is parked and comes back with the next GPU cell"
    return "has held no GPU yet; the first GPU cell asks for one"


def _rung(lease: LeaseState) -> str:
    """What can be done with its state; "" where it has none, or nothing is known."""
    why = f": {lease.rung_reason}" if lease.rung_reason else ""
    if lease.rung == Rung.EXCLUSIVE and (lease.gpus or lease.phase != Phase.HOLDING):
        return f"a GPU stays with this kernel until it ends or is restarted{why}"
    if not lease.gpus and not lease.home:
        return ""
    if lease.rung == Rung.SAME_GPU:
        return f"parked, its state comes back to the same GPU{why}"
    return "parked, its state can come back to any GPU here" if lease.rung == Rung.ANYWHERE else ""


def _usage(text: str) -> Exception:
    from IPython.core.error import UsageError

    return UsageError(text)


def _time(value: float) -> str:
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def _bytes(value: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
