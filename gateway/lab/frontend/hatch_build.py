"""Hatchling's hook: JupyterLab's face is built from TypeScript by npm, into ``gateway/lab/labextension``, and put into the wheel.

Nothing is done where sources and result are the same as at the last build. Without npm, or where it fails, everything else is installed all
the same and a warning says what is missing; the variable ``ELASTIC_LAB_EXTENSION`` makes it an error (``require``, for a release) or leaves
JupyterLab's face out (``skip``). It must never download anything but what ``package-lock.json`` pins.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FRONTEND = "gateway/lab/frontend"
BUILT = "gateway/lab/labextension"
INSTALLED = "share/jupyter/labextensions/jupyter-elastic-gateway"
SOURCES = ("package.json", "package-lock.json", "build.mjs", "src/**/*", "style/**/*")
STAMP = "sources.sha256"
MAKE = "ELASTIC_LAB_EXTENSION"
TIMEOUT = 600  # seconds, of npm on a slow network


class LabExtensionHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        wish = os.environ.get(MAKE, "")
        if wish != "skip" and (why := build(root / FRONTEND, root / BUILT)):
            said = f"JupyterLab's face of the gateway is not in this build: {why} Install Node.js 20 or newer and install again."
            if wish == "require":
                raise RuntimeError(said)
            self.app.display_warning(said)
        if wish != "skip" and (root / BUILT / "package.json").is_file():
            if self.target_name == "sdist":
                build_data["artifacts"].append(f"/{BUILT}")
            else:
                build_data["shared_data"][BUILT] = INSTALLED


def build(frontend: Path, built: Path) -> str:
    """Bring ``built`` up to date. Returns why that could not be, "" if it is."""
    wanted = fingerprint(frontend)
    stamp = built / STAMP
    if stamp.is_file() and stamp.read_text() == wanted:
        return ""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return f"{'npm' if node else 'node'} was not found."
    try:
        install(npm, frontend)
        run(node, "build.mjs", cwd=frontend)
    except (OSError, subprocess.SubprocessError) as exc:
        return f"building it failed ({exc})."
    stamp.write_text(wanted)
    return ""


def fingerprint(frontend: Path) -> str:
    """Of all that the result is made from."""
    found = hashlib.sha256()
    for file in sorted(file for pattern in SOURCES for file in frontend.glob(pattern) if file.is_file()):
        found.update(f"{file.relative_to(frontend)}\n{file.stat().st_size}\n".encode() + file.read_bytes())
    return found.hexdigest()


def install(npm: str, frontend: Path) -> None:
    """What ``build.mjs`` needs: esbuild, in the version that is pinned."""
    if not esbuild_is_there(frontend):
        run(npm, "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", cwd=frontend)


def esbuild_is_there(frontend: Path) -> bool:
    """In the version that is pinned."""
    kept = frontend / "node_modules" / ".package-lock.json"
    if not kept.is_file():
        return False
    name = "node_modules/esbuild"
    have, want = (json.loads(file.read_text())["packages"].get(name, {}) for file in (kept, frontend / "package-lock.json"))
    return bool(have) and have.get("version") == want.get("version")


def run(*command: str, cwd: Path) -> None:
    done = subprocess.run(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, timeout=TIMEOUT
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        raise subprocess.SubprocessError(f"{Path(command[0]).name} {command[1]} ended with {done.returncode}: {done.stdout.strip()[-400:]}")


if __name__ == "__main__":
    here = Path(__file__).parent
    sys.exit(build(here, here.parent / "labextension"))
