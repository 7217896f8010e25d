"""Kernels as processes of this machine: one folder a kernel, a detached supervisor in it.

A supervisor outlives whoever started it; who must end with its owner is told so in its Spec. Secrets go by file, never by argument
or environment. Nothing here must ever block the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..protocol.errors import ElasticError, LaunchError, LaunchTimeout, SupervisorLost, cause
from ..protocol.model import Spec
from ..protocol.wire import dumps
from ..settings import ElasticGateway, LocalBackend, SimulatedGpu
from . import processes
from .base import Backend, Claim, Supervisor
from .begun import Begun
from .gpus import Inventory
from .nursery import Nursery, Started
from .places import Places
from .turns import Turns, usual

_PACKAGES = str(Path(__file__).parents[2])  # where `gateway` is imported from
_MARK = "ELASTIC_SUPERVISOR"  # in the environment of each kernel: the path of its magic socket
_ENDING = "ending"  # in the folder of a kernel that is to be ended
ABANDONED_SECONDS = 60.0  # a supervisor says that it is there long before

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class LocalSupervisor(Supervisor):
    """A supervisor of this machine, known by its folder."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes] | None = None) -> None:
        """Reads ``supervisor.json``; raises ``SupervisorLost`` where there is none that can be read."""
        try:
            info: dict[str, Any] = json.loads((folder / "supervisor.json").read_bytes())
            self.kernel_id = str(info["kernel_id"])
            self.link_address = str(info["link"])
            self.key = str(info["key"])
            self.connection = dict(info["connection"])
            if info.get("curve_secretkey"):
                self.connection["curve_secretkey"] = str(info["curve_secretkey"])
            self.identity = (int(info["pid"]), int(info["started"]))
            self.metadata = dict(info.get("metadata") or {})
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as exc:
            raise SupervisorLost(f"no kernel runs in {folder}: {exc}") from None
        self.owner = str(info.get("owner", ""))
        self.user = str(info.get("user", ""))
        self.name = str(info.get("name", ""))
        self.display = str(info.get("display", ""))
        self.folder = folder
        self.place = str(folder)
        self.ending = (folder / _ENDING).exists()
        self._process = process

    def alive(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        return processes.started(self.identity[0]) == self.identity[1]

    async def end(self, grace: float) -> None:
        await _end(self.folder, self.identity, grace)
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)

    async def clear(self) -> None:
        before = processes.now()
        if not self.alive():
            await asyncio.to_thread(_end_marked, self.folder, before)

    def last_words(self) -> str:
        return last_words(self.folder)


class LocalMachine(Backend):
    """This machine, for one Unix user."""

    def __init__(self, gateway: ElasticGateway, local: LocalBackend, simulated: SimulatedGpu) -> None:
        self._local = local
        self.places: Places = Places(local.runtime_dir)
        self._inventory = Inventory(gateway, local, simulated, self.places, _end_left)
        self.lock_dir: str = str(self._inventory.lock_dir)
        self._turns = Turns(usual() if local.starts_at_once is None else local.starts_at_once)
        self._begun = Begun(self.places.starts)
        self._nursery = Nursery()
        self._starts = 0
        self._closed = False

    @property
    def drained(self) -> Set[str]:  # type: ignore[override]
        """From the file, so that papermill and the like, which have no broker in their process, know it too."""
        return {LocalSupervisor.node} if self.places.drained.exists() else set()

    def drain(self, nodes: Set[str]) -> None:
        try:
            self.places.drained.touch() if nodes else self.places.drained.unlink(missing_ok=True)
        except OSError as exc:
            raise ElasticError(f"The draining can't be kept: {cause(exc, self.places.drained)}.", reason="not_kept") from None

    async def turn(self, spec: Spec, told: Callable[[str], None]) -> None:
        waits, name = self._turns.full, self.places.kernel(spec.kernel_id).name
        try:
            if waits and spec.owner:
                await asyncio.to_thread(self._begun.keep, name, spec)
            await self._turns.take(spec.kernel_id, spec.user, told)
        except BaseException as exc:
            self.withdraw(spec.kernel_id)
            if isinstance(exc, OSError):
                raise LaunchError(f"The kernel could not be started: {cause(exc, self.places.starts)}.") from exc
            raise

    def withdraw(self, kernel_id: str) -> None:
        self._turns.give(kernel_id)
        if not self._closed:  # else the next gateway goes on with it
            self._begun.forget(self.places.kernel(kernel_id).name)

    def end_begins(self, kernel_id: str) -> None:
        with contextlib.suppress(OSError):  # it is just being started, or the disk is full
            (self.places.kernel(kernel_id) / _ENDING).touch(mode=0o600)

    async def unfinished(self) -> list[Spec]:
        return await asyncio.to_thread(self._begun.all)

    async def close(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._nursery.close)

    async def start(self, spec: Spec, told: Callable[[str], None] = lambda text: None) -> LocalSupervisor:
        if self.drained:
            raise LaunchError(
                "This machine is being drained for maintenance, so no kernel starts here. Try again when the administrator has ended that "
                f"(`jupyter elastic-gateway drain {LocalSupervisor.node} --off`).",
                reason="drained",
            )
        folder = self.places.kernel(spec.kernel_id)
        spec = replace(spec, lock_dir=self.lock_dir)
        reading, writing = os.pipe2(os.O_CLOEXEC)
        process: Started | None = None
        self._starts += 1
        if self._starts > 1:  # whoever starts one alone, such as papermill, would wait for a second process for nothing
            await asyncio.to_thread(self._nursery.begin, supervisor_env())
        try:
            spawning = asyncio.ensure_future(asyncio.to_thread(self._spawn, folder, spec, writing))
            try:
                process = await asyncio.shield(spawning)
            except asyncio.CancelledError:
                process = await spawning  # it can't be stopped halfway
                raise
            finally:
                os.close(writing)
            async with asyncio.timeout(self._local.launch_timeout):
                line = await _line(reading)
            if line != "ready":
                said = line.removeprefix("failed:").strip() or await asyncio.to_thread(_how_it_ended, process)
                raise LaunchError(_with_words(f"The kernel could not be started: {said}", last_words(folder)))
            supervisor = LocalSupervisor(folder, process if isinstance(process, subprocess.Popen) else None)
            _at_end(os.dup(reading), lambda: self._turns.give(spec.kernel_id))
            return supervisor
        except BaseException as exc:
            self._turns.give(spec.kernel_id)
            words = last_words(folder)
            if process is not None:
                await asyncio.shield(_clear(folder, process))
            if isinstance(exc, TimeoutError):
                limit = f"{self._local.launch_timeout:g} seconds (LocalBackend.launch_timeout)"
                raise LaunchTimeout(_with_words(f"The kernel's supervisor did not listen within {limit}.", words)) from None
            if isinstance(exc, OSError):
                raise LaunchError(f"The kernel's supervisor could not be started: {cause(exc, folder)}.") from exc
            raise
        finally:
            os.close(reading)

    async def find(self) -> list[Supervisor]:
        living, left = await asyncio.to_thread(self._look)
        for folder in left:
            await _end(folder, None, 0)
        return living

    async def at(self, place: str) -> LocalSupervisor:
        folder = Path(place)
        if folder.parent != self.places.kernels:
            raise SupervisorLost(f"{place} isn't a kernel's folder below {self.places.kernels}: the two LocalBackend.runtime_dir differ.")
        supervisor = LocalSupervisor(folder)
        if not supervisor.alive():
            raise SupervisorLost(f"the supervisor in {place} has ended")
        return supervisor

    async def generation(self) -> int:
        return await asyncio.to_thread(self.places.next_generation)

    async def claim(self, who: str, ours: Collection[str] = (), known: Set[str] = frozenset()) -> Claim:
        return await asyncio.to_thread(self._inventory.claim, who, ours)

    def unclaim(self) -> None:
        self._inventory.unclaim()

    async def uses(self, kernel_pid: int, gpus: Iterable[str], seconds: float) -> bool:
        return await asyncio.to_thread(self._inventory.uses, kernel_pid, list(gpus), seconds)

    def _look(self) -> tuple[list[Supervisor], list[Path]]:
        """The supervisors that live, and the folders that dead ones have left."""
        living: list[Supervisor] = []
        left: list[Path] = []
        for folder in sorted(self.places.kernels.iterdir()):
            try:
                supervisor = LocalSupervisor(folder)
            except SupervisorLost:
                if _abandoned(folder):
                    left.append(folder)
                continue
            if supervisor.alive():
                living.append(supervisor)
            else:
                left.append(folder)
        return living, left

    def _spawn(self, folder: Path, spec: Spec, ready: int) -> Started:
        if folder.exists():
            self._make_room(folder, spec.kernel_id)
        folder.mkdir(mode=0o700)
        try:
            with open(os.open(folder / "spec.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(dumps(spec.to_json()))
            self._begun.forget(folder.name)
            with open(os.open(folder / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "wb") as log:
                command, env = [sys.executable, "-P", "-m", "gateway.pod.supervisor", str(folder)], supervisor_env()
                return self._nursery.fork([*command, "{report}"], env, log.fileno(), ready) or subprocess.Popen(
                    [*command, str(ready)], cwd="/", env=env,
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[ready], start_new_session=True,
                )  # fmt: skip
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # a disk that is full, or too many processes: nothing runs there
            raise

    def _make_room(self, folder: Path, kernel_id: str) -> None:
        try:
            if LocalSupervisor(folder).alive():
                raise LaunchError(f"A kernel with the id {kernel_id} runs already: connect to it, or choose another id.")
        except SupervisorLost:
            pass
        _end_marked(folder, processes.now())
        shutil.rmtree(folder)


def supervisor_env() -> dict[str, str]:
    """What a supervisor itself is started with: enough to run Python and import this package, nothing else of ours."""
    keep = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
    return {**{name: os.environ[name] for name in keep if name in os.environ}, "PYTHONPATH": _PACKAGES}


def last_words(folder: Path, most: int = 2000) -> str:
    """The end of what the kernel has written, or else the supervisor, as plain text."""
    for name in ("kernel.log", "supervisor.log"):
        try:
            with (folder / name).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4 * most))
                text = _ANSI.sub("", file.read().decode("utf-8", "replace")).strip()
        except OSError:
            continue
        if text:
            return text[-most:]
    return ""


def _with_words(sentence: str, words: str) -> str:
    return f"{sentence}\nIts last words:\n{words}" if words and words not in sentence else sentence


def _how_it_ended(process: Started) -> str:
    """Of a supervisor that has closed its pipe without a word. Blocks for a moment."""
    try:
        code = process.wait(1.0)
    except subprocess.TimeoutExpired:
        code = 0
    by = f", killed by {signal.Signals(-code).name}" if code < 0 and -code in set(signal.Signals) else ""
    hint = " (the machine or its memory limit ran out of memory?)" if -code == signal.SIGKILL else ""
    return f"its supervisor ended before it listened{by}{hint}. Start the kernel again"


async def _line(fd: int) -> str:
    """One line from a pipe, "" where it is closed without any."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str] = loop.create_future()
    read = bytearray()

    def readable() -> None:
        try:
            chunk = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        read.extend(chunk)
        if (not chunk or b"\n" in read) and not done.done():
            done.set_result(read.partition(b"\n")[0].decode("utf-8", "replace"))

    os.set_blocking(fd, False)
    loop.add_reader(fd, readable)
    try:
        return await done
    finally:
        loop.remove_reader(fd)


def _at_end(fd: int, call: Callable[[], None]) -> None:
    """``call`` once nobody writes to a pipe any more, and close it. What comes through it meanwhile means nothing."""
    loop = asyncio.get_running_loop()

    def readable() -> None:
        try:
            if os.read(fd, 1 << 12):
                return
        except BlockingIOError:
            return
        loop.remove_reader(fd)
        os.close(fd)
        call()

    loop.add_reader(fd, readable)


async def _clear(folder: Path, process: Started) -> None:
    """A start that failed, or isn't wanted any more."""
    start = processes.started(process.pid)
    if start is not None:  # before anything else, should we be killed just now: no user's code has run in it, so its mark finds all of it
        processes.send({(process.pid, start)}, signal.SIGTERM)
    await _end(folder, None if start is None else (process.pid, start), 0.5)
    await asyncio.to_thread(process.wait)


async def _end(folder: Path, supervisor: processes.Identity | None, grace: float) -> None:
    """Ask, wait, kill, clear away."""
    family: set[processes.Identity] = set()
    if supervisor is not None and processes.started(supervisor[0]) == supervisor[1]:
        family = await asyncio.to_thread(processes.descendants, supervisor[0])
        processes.send({supervisor}, signal.SIGTERM)
        waited = 0.0
        while processes.started(supervisor[0]) == supervisor[1] and waited < grace:
            await asyncio.sleep(0.02)
            waited += 0.02
    await asyncio.to_thread(_sweep, folder, family)


def _end_marked(folder: Path, before: int) -> None:
    """What was started by the kernel in ``folder`` up to then, in clock ticks since boot: not what its next life may have started."""
    processes.kill_all({each for each in processes.marked(_MARK, str(folder / "magic.sock")) if each[1] <= before})


def _end_left(mark: str) -> None:
    """What a killed supervisor's kernel has left. The path of its magic socket is others' word: nobody is ended whose supervisor lives."""
    if not _served(Path(mark).parent):
        processes.kill_all(processes.marked(_MARK, mark))


def _sweep(folder: Path, family: set[processes.Identity]) -> None:
    if folder.exists():  # a supervisor that ended well has taken its folder, and its kernel, with it
        processes.kill_all(family | processes.marked(_MARK, str(folder / "magic.sock")))
        shutil.rmtree(folder, ignore_errors=True)


def _abandoned(folder: Path) -> bool:
    """Whether nobody is just about to start a supervisor in ``folder``: it has stood there for a while, and no process knows of it."""
    try:
        if time.time() - folder.stat().st_mtime < ABANDONED_SECONDS:
            return False
    except OSError:
        return False
    return not _served(folder)


def _served(folder: Path) -> bool:
    """Whether a process was started for this folder, as a supervisor is."""
    argument = os.fsencode(folder)
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                if argument in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    return True
            except OSError:
                continue
    return False
