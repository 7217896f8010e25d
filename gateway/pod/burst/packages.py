"""What a burst wants installed for its workers: ``python -m gateway.pod.burst.packages FOLDER`` puts it into the burst's own folder.

pip decides what is missing. It must never change what is installed where the workers' Python comes from, nor install anything that
isn't asked for, nor what is there already in the same version.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Optional

from ...protocol import burst
from ...protocol.burst import SAME, WANTED, Plan
from ..child import Child, last_words
from .journal import Journal

LOOK = 0.1  # seconds between two looks at pip
TARGET = "packages"  # in the burst's folder, first on the workers' module path
_LOG = "pip.log"
_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet", "--progress-bar", "off")


def install(
    folder: Path, plan: Plan, umask: int, journal: Journal, told: Callable[[float], Optional[tuple[str, str]]]
) -> Optional[tuple[str, str]]:  # fmt: skip
    """What the workers of ``plan`` need besides; the burst's end, where that can't be had. ``told``: whether it is to end meanwhile."""
    names = wanted(folder)
    if not names:
        return None
    journal.add(burst.WAITS, text=f"installs {', '.join(names[:4])}{' …' * (len(names) > 4)} for its workers")
    python = str(burst.read_json(folder / burst.REQUEST)["python"])
    log = folder / _LOG
    try:
        child = Child([python, "-m", __name__, str(folder)], plan.env, str(folder), log, umask)
    except OSError as exc:
        return burst.ERROR, f"{python} can't be started: {exc.strerror or exc}."
    try:
        while (code := child.poll()) is None:
            if outcome := told(time.monotonic()):
                return outcome
            time.sleep(LOOK)
    finally:  # of pip nothing is left running, whatever has ended it
        child.sweep()
        while child.poll() is None:
            time.sleep(0.01)
        child.close()
    if code:
        return burst.ERROR, f"What --pip names can't be installed for the workers. pip says:\n{last_words(log)}"
    path = [str(folder / TARGET), plan.env.get("PYTHONPATH", "")]
    plan.env["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return None


def wanted(folder: Path) -> list[str]:
    """What is to be installed for the burst in ``folder``, for people. Raises ``OSError``, ``ValueError``."""
    asked = _asked(folder)
    return [*asked.get(SAME, ()), *asked.get(WANTED, ())]


def _asked(folder: Path) -> dict[str, Any]:
    asked: dict[str, Any] = burst.read_json(folder / burst.REQUEST).get("pip") or {}
    return asked


def main(argv: list[str]) -> int:
    """pip's exit code, its words on stdout and stderr."""
    from ...protocol.transfer import versions  # the agent, which starts this, has no use for it

    folder = Path(argv[1])
    asked = _asked(folder)
    here = [{"name": name, "version": number, "spec": each} for each in asked.get(SAME, ()) for name, _, number in [each.partition("==")]]
    exact = [item["spec"] for item in versions.missing(here)]
    if asked.get(WANTED):
        report = folder / "pip.json"
        code = subprocess.run([sys.executable, *_PIP, "--dry-run", "--report", str(report), *asked[WANTED]], check=False).returncode
        if code:
            return code
        exact += [_exactly(item) for item in json.loads(report.read_text())["install"]]
    if not exact:
        return 0
    return subprocess.run([sys.executable, *_PIP, "--no-deps", "--target", str(folder / TARGET), *exact], check=False).returncode


def _exactly(item: dict[str, Any]) -> str:
    """The requirement for what pip has found."""
    name, number = item["metadata"]["name"], item["metadata"]["version"]
    return f"{name} @ {item['download_info']['url']}" if item.get("is_direct") else f"{name}=={number}"


if __name__ == "__main__":
    sys.exit(main(sys.argv))
