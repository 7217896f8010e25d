"""Whether what one Python packed can be loaded by another, known from the header alone, before anything is loaded.

It must never be the reason that something which works is refused: only what is known to break is an error, the rest is a note.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Optional

from . import FORMAT
from .serializer import VERSION

STANDARD = frozenset(getattr(sys, "stdlib_module_names", sys.builtin_module_names)) | {"__main__", "gateway"}


class Difference(NamedTuple):
    name: str
    there: str  # where it was packed
    here: str  # empty: not installed
    fatal: bool


def facts(packages: Iterable[str]) -> dict[str, Any]:
    """What the header says of this side; ``packages`` are top-level modules that packed objects refer to."""
    found = {name: version(name) for name in sorted(packages)}
    return {
        "format": FORMAT,
        "python": platform.python_version(),
        "cloudpickle": VERSION,
        "packages": {name: number for name, number in found.items() if number},
    }


def version(module: str) -> Optional[str]:
    """The version of a top-level module that is loaded or installed; None for the standard library's and for what has none."""
    if module in STANDARD:
        return None
    number = getattr(sys.modules.get(module), "__version__", None)
    if isinstance(number, str):
        return number
    try:
        return importlib.metadata.version(module)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None


def differences(there: dict[str, Any]) -> list[Difference]:
    """What differs here from ``facts`` made elsewhere."""
    found = []
    if there.get("format") != FORMAT:
        found.append(Difference("jupyter-elastic-gateway's format", str(there.get("format")), str(FORMAT), True))
    for name, here, parts in (("Python", platform.python_version(), 2), ("cloudpickle", VERSION, 1)):
        other = there.get(name.lower())
        if other is not None and other != here:  # None: nothing was packed
            found.append(Difference(name, other, here, other.split(".")[:parts] != here.split(".")[:parts]))
    for name, other in there.get("packages", {}).items():
        here = version_here(name)
        if here != other:
            found.append(Difference(name, other, here or "", not here or here.split(".")[0] != other.split(".")[0]))
    return found


def version_here(module: str) -> Optional[str]:
    """Like ``version``, without importing what is installed; ``?`` for what is there and has no version."""
    number = version(module)
    if number:
        return number
    try:
        distributions = importlib.metadata.packages_distributions().get(module)  # Python >= 3.10
    except AttributeError:
        distributions = None
    if distributions:
        return importlib.metadata.version(distributions[0])
    return None


def table(found: list[Difference], there: str, here: str) -> str:
    """For people: one line each."""
    return "\n".join(f"  {item.name}: {there} {item.there}, {here} {item.here or 'has none'}" for item in found)


def installed_since(moment: float) -> list[dict[str, str]]:
    """Distributions whose files are younger than ``moment`` (seconds since the epoch): what a user added to an image with pip.

    ``[{"name", "version", "spec"}]``; ``spec`` is what pip installs it by, empty for what lies in a folder of this machine only.
    """
    found = []
    for name, (number, folder) in sorted(_distributions().items()):
        try:
            if folder.stat().st_mtime <= moment:
                continue
            origin = folder / "direct_url.json"
            local = origin.exists() and "file:" in origin.read_text()
        except OSError:
            continue
        found.append({"name": name, "version": number, "spec": "" if local else f"{name}=={number}"})
    return found


def missing(installed: list[dict[str, str]]) -> list[dict[str, str]]:
    """Those of ``installed_since`` elsewhere that are not here in the same version."""
    here = _distributions() if installed else {}
    return [item for item in installed if here.get(item["name"], ("",))[0] != item["version"]]


def _distributions() -> dict[str, tuple[str, Path]]:
    """``{name: (version, folder)}``, told by the folders' names: reading what is inside takes a third of a second."""
    found: dict[str, tuple[str, Path]] = {}
    for place in sys.path:
        try:
            entries = os.listdir(place or ".")
        except OSError:
            continue
        for entry in entries:
            name, dash, number = entry[: -len(".dist-info")].partition("-")
            if entry.endswith(".dist-info") and dash:
                found.setdefault(name, (number, Path(place, entry)))
    return found


def is_installed(file: str) -> bool:
    """Whether a module's file lies where pip or a system puts packages, known by what they leave beside it."""
    folder = Path(file).parent.parent if Path(file).name == "__init__.py" else Path(file).parent
    return folder.name in ("site-packages", "dist-packages") or any(folder.glob("*-info"))


def container_started() -> float:
    """When process 1 began, in seconds since the epoch: in a container, what is younger was installed by its user. Infinity: unknown."""
    try:
        ticks = int(Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19])
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        return int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, StopIteration, ValueError, IndexError):
        return float("inf")
