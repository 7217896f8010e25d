"""JupyterLab's face: how it is built, and its pure parts (tests/lab/frontend, run by Node's own test runner)."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.cluster.places import cache

ROOT = Path(__file__).parents[2]
FRONTEND = ROOT / "gateway" / "lab" / "frontend"
BUILT = ROOT / "gateway" / "lab" / "labextension"
MOST_BYTES = 150_000

needs_node = pytest.mark.skipif(
    shutil.which("npm") is None, reason="no npm on this machine; `apt-get install nodejs npm` or nodejs.org brings Node.js 20 or newer"
)


@pytest.fixture(scope="module")
def hook():
    spec = importlib.util.spec_from_file_location("hatch_build", FRONTEND / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    pytest.importorskip("hatchling", reason="hatchling is not installed; `pip install hatchling` brings it")
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def built(hook) -> Path:
    assert hook.build(FRONTEND, BUILT) == ""
    return BUILT


def run(*command: str, cwd: Path = FRONTEND) -> str:
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


@needs_node
def test_what_is_shown_of_which_state(hook, tmp_path):
    hook.install(shutil.which("npm"), FRONTEND)
    run("node", "build.mjs", "tests", str(tmp_path))
    files = sorted(map(str, tmp_path.glob("*.mjs")))
    assert len(files) == len(list((Path(__file__).parent / "frontend").glob("*.test.ts")))
    assert "# fail 0" in run("node", "--test", "--test-reporter=tap", *files)


@needs_node
@pytest.mark.timeout(600)
def test_its_types_hold_against_jupyterlab(tmp_path):
    """JupyterLab's own types are some 300 MB: they are kept in the cache, not in this folder."""
    frontend = tmp_path / "gateway" / "lab" / "frontend"
    frontend.mkdir(parents=True)
    for name in ("src", "package.json", "package-lock.json", "tsconfig.json"):
        (frontend / name).symlink_to(FRONTEND / name)
    (tmp_path / "tests" / "lab").mkdir(parents=True)
    (tmp_path / "tests" / "lab" / "frontend").symlink_to(Path(__file__).parent / "frontend")
    (tmp_path / "node_modules").symlink_to(types())
    run("node", str(tmp_path / "node_modules" / "typescript" / "bin" / "tsc"), "--noEmit", "--preserveSymlinks", cwd=frontend)


def types() -> Path:
    """The ``node_modules`` of the lock file, installed once."""
    key = hashlib.sha256((FRONTEND / "package-lock.json").read_bytes()).hexdigest()[:16]
    kept = cache().parent / f"frontend-{key}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    if not kept.is_dir():
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix="frontend-") as folder:
            draft = Path(folder) / "draft"
            draft.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(FRONTEND / name, draft)
            run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", cwd=draft)
            draft.rename(kept)
    return kept / "node_modules"


@needs_node
def test_it_is_small_and_one_file_names_what_jupyterlab_loads(built):
    facts = json.loads((built / "package.json").read_text())["jupyterlab"]
    assert [str(file.relative_to(built)) for file in (built / "static").iterdir()] == [facts["_build"]["load"]]
    assert sum(file.stat().st_size for file in built.rglob("*") if file.is_file()) <= MOST_BYTES


@needs_node
def test_nothing_is_built_where_nothing_has_changed(hook, built, monkeypatch):
    monkeypatch.setattr(hook, "run", lambda *command, cwd: pytest.fail(f"{command} was run"))
    assert hook.build(FRONTEND, BUILT) == ""


def test_without_npm_it_says_what_is_missing(hook, tmp_path, monkeypatch):
    monkeypatch.setattr(hook.shutil, "which", lambda name: None)
    assert hook.build(FRONTEND, tmp_path) == "node was not found."


def test_a_change_of_a_source_is_seen(hook, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.ts").write_text("1")
    before = hook.fingerprint(tmp_path)
    (tmp_path / "src" / "a.ts").write_text("2")
    assert hook.fingerprint(tmp_path) != before


def test_the_lock_file_pins_every_package_by_its_contents_and_names_no_registry():
    packages = json.loads((FRONTEND / "package-lock.json").read_text())["packages"]
    assert all("integrity" in facts and "resolved" not in facts for name, facts in packages.items() if name)
