"""The words after ``%%distributed``: read, with defaults, or refused with what would do.

It must never guess: a word that isn't known ends the cell before anything has started.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Optional

from ...protocol.burst import COMPRESSION, REQUIREMENT, SAVE_EVERY
from ...protocol.durations import read_duration
from ...protocol.roles import PS

INSTALLED = "installed"
ROLE_WORDS = ("name", "count", "gpus", "cpu", "memory", "image")
LAUNCHERS = ("auto", "local", "job", "jobset", "trainjob", "volcano", "rayjob", "mpijob")


class Usage(Exception):
    """What is wrong with the words, in one sentence."""


@dataclass(frozen=True)
class Options:
    """``workers``: at least; ``most``: at most. ``give_back``, ``show``: numbers of ranks, None: all of them. ``save_every``: seconds."""

    workers: int
    most: int
    engine: str
    procs: int = 1  # processes of each worker: ranks
    gpus: Optional[int] = None  # of each worker; None: one for each of its processes if the cell uses them and there are enough
    name: Optional[str] = None
    take: tuple[str, ...] = ()  # --in
    take_nothing: bool = False  # --no-in
    out: Optional[tuple[str, ...]] = None
    give_back: Optional[tuple[int, ...]] = (0,)
    show: Optional[tuple[int, ...]] = (0,)
    init: bool = True
    detach: bool = False
    timeout: Optional[float] = None
    save_every: float = SAVE_EVERY
    restartable: bool = False
    compress: Optional[str] = None
    queue: Optional[str] = None  # of the cluster
    launcher: str = "auto"
    pip: tuple[str, ...] = ()  # to install for the workers; INSTALLED: what the user has in the kernel
    roles: tuple[dict[str, Any], ...] = ()  # beside the workers: name, count and what its members are to have
    on_demand: bool = False  # no spot nodes
    image: Optional[str] = None  # of the workers' pods
    dry_run: bool = False

    @property
    def elastic(self) -> bool:
        return self.most > self.workers

    @property
    def voices(self) -> int:
        """How many may say something, at most; of a role at least one."""
        return self.most * self.procs + len(self.roles)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        _, unknown, words = message.partition("unrecognized arguments: ")
        if unknown:
            meant = get_close_matches(words.lower().partition(" ")[0], self._option_string_actions, 1)
            message = f"there is no {words!r}{f', perhaps {meant[0]} is meant' if meant else ''}"
        raise Usage(message)


def words_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%distributed", add_help=False, allow_abbrev=False)
    parser.add_argument("-w", "--workers", default="2", metavar="N")
    parser.add_argument("-e", "--engine", metavar="ENGINE")
    parser.add_argument("-g", "--gpus")
    parser.add_argument("--procs", default="1")
    parser.add_argument("-l", "--launcher", default="auto", choices=LAUNCHERS)
    parser.add_argument("--in", dest="take", type=_names, default=())
    parser.add_argument("--no-in", dest="take_nothing", action="store_true")
    parser.add_argument("--out", type=_names)
    parser.add_argument("--ranks", default="0")
    parser.add_argument("--show")
    parser.add_argument("--no-init", dest="init", action="store_false")
    parser.add_argument("--detach", action="store_true")
    parser.add_argument("--timeout")
    parser.add_argument("--save-every")
    parser.add_argument("--compress")
    parser.add_argument("--restartable", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--name")
    parser.add_argument("--queue")
    parser.add_argument("--on-demand", action="store_true")
    parser.add_argument("--image")
    parser.add_argument("--pip", action="append", default=[])
    parser.add_argument("--ps")
    parser.add_argument("--role", action="append", default=[])
    return parser


def read(line: str) -> Options:
    """The options in ``line``. Raises ``Usage``."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as exc:
        raise Usage(f"{exc} in {line.strip()!r}") from None
    found = words_parser().parse_args(words)
    (workers, most), procs = _workers(found.workers), _procs(found.procs)
    engine = found.engine or ("torch" if importlib.util.find_spec("torch") else "none")
    show = found.show if found.show is not None else ("all" if engine == "none" else "0")
    return Options(
        workers=workers, most=most, procs=procs, engine=engine, gpus=_gpus(found.gpus), name=found.name, take=found.take,
        take_nothing=found.take_nothing, out=found.out, give_back=_ranks("--ranks", found.ranks, workers * procs),
        show=_ranks("--show", show, most * procs), init=found.init, detach=found.detach, timeout=_duration("--timeout", found.timeout),
        save_every=_duration("--save-every", found.save_every) or SAVE_EVERY, restartable=found.restartable,
        compress=_compress(found.compress, engine), dry_run=found.dry_run, queue=found.queue, launcher=found.launcher,
        pip=_requirements(found.pip), on_demand=found.on_demand, image=found.image,
        roles=(*_ps(found.ps, engine), *map(_role, found.role)),
    )  # fmt: skip


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    bad = next((name for name in names if not name.isidentifier()), None)
    if bad is not None:
        raise argparse.ArgumentTypeError(f"{bad!r} can't be the name of a variable")
    return names


def _workers(text: str) -> tuple[int, int]:
    """At least and at most."""
    least, colon, most = text.partition(":")
    words = (least, most) if colon else (least,)
    if not all(word.isascii() and word.isdigit() and len(word) < 8 and int(word) for word in words):
        raise Usage(f"-w needs a number of workers, 1 or more, or two as in -w 2:8, not {text!r}")
    if int(words[-1]) < int(least):
        raise Usage(f"-w {text}: the least comes first, as in -w {most}:{least}")
    return int(least), int(words[-1])


def _procs(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 4 and int(text)):
        raise Usage(f"--procs needs a number of processes for each worker, 1 or more, not {text!r}")
    return int(text)


def _duration(option: str, text: Optional[str]) -> Optional[float]:
    seconds = None if text is None else read_duration(text)
    if text is not None and not seconds:
        raise Usage(f"{option} needs a time such as 90s, 30m or 2h, not {text!r}")
    return seconds


def _compress(text: Optional[str], engine: str) -> Optional[str]:
    if text is None:
        return None
    if engine != "torch":
        raise Usage(f"--compress is for the gradients of -e torch, not of -e {engine}")
    if not COMPRESSION.fullmatch(text):
        raise Usage(f"--compress takes fp16, bf16, powersgd or powersgd:RANK, not {text!r}")
    return text


def _requirements(texts: list[str]) -> tuple[str, ...]:
    bad = next((text for text in texts if not REQUIREMENT.fullmatch(text)), None)
    if bad is not None:
        raise Usage(f"--pip takes a package as pip names it, as in --pip einops==0.8, or the word {INSTALLED}; not {bad!r}")
    return tuple(texts)


def _ps(text: Optional[str], engine: str) -> tuple[dict[str, Any], ...]:
    if text is None:
        return ()
    if engine != "tf-ps":
        raise Usage(f"--ps is for the parameter servers of -e tf-ps, not of -e {engine}")
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 10**6):
        raise Usage(f"--ps needs a number of parameter servers, 1 or more, not {text!r}")
    return ({"name": PS, "count": int(text)},)


def _role(text: str) -> dict[str, Any]:
    first, *more = text.split(",")
    words = [word.partition("=")[::2] for word in [f"name={first.partition('=')[0]}", f"count={first.partition('=')[2]}", *more]]
    role: dict[str, Any] = {key.strip(): value.strip() for key, value in words}
    unknown = next((key for key in role if key not in ROLE_WORDS), None)
    if unknown is not None or len(role) < len(words):
        raise Usage(f"--role {text}: after its count a role may have {', '.join(ROLE_WORDS[2:])}, once each")
    for key in ("count", "gpus"):
        value = role.get(key, "1")
        if not (value.isascii() and value.isdigit() and len(value) < 7 and (int(value) or key == "gpus")):
            raise Usage(f"--role {text}: a role has a name and a number, as in --role simulator=3 or --role simulator=3,gpus=1")
        if key in role:
            role[key] = int(value)
    return role


def _gpus(text: Optional[str]) -> Optional[int]:
    if text is not None and not (text.isascii() and text.isdigit() and len(text) < 3):
        raise Usage(f"-g needs a number of GPUs for each worker, 0 or more, not {text!r}")
    return None if text is None else int(text)


def _ranks(option: str, text: str, count: int) -> Optional[tuple[int, ...]]:
    if text == "all":
        return None
    words = text.split(",")
    if not all(word.strip().isdecimal() and word.isascii() for word in words):
        raise Usage(f"{option} needs numbers of ranks, as in {option} 0,3, or {option} all; not {text!r}")
    ranks = tuple(sorted({int(word) for word in words}))
    if ranks[-1] >= count:
        raise Usage(f"{option} {text}: of {count} ranks the last is rank {count - 1}")
    return ranks
