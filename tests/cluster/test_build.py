"""Building the cluster's programs: a module of two lines stands for Kubernetes, Go is the real one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from . import build

REPOSITORY = Path(__file__).parents[2]
MAIN = """package main

import "fmt"

var version = "none"

func main() { fmt.Println("hello", version) }
"""
BUILD = """
import sys
from tests.cluster import build
print(build.build(build.Module(sys.argv[1], {"hello": "example.com/hello/cmd/hello", "again": "example.com/hello/cmd/hello"})))
"""


@pytest.fixture
def module(tmp_path, monkeypatch) -> build.Module:
    try:
        build.find_go()
    except build.BuildError as error:
        pytest.skip(str(error))
    for name, text in {
        "go.mod": "module tests\n\ngo 1.24\n\nrequire example.com/hello v1.2.3\n\nreplace example.com/hello => ./hello\n",
        "go.sum": "",
        "hello/go.mod": "module example.com/hello\n\ngo 1.24\n",
        "hello/cmd/hello/main.go": MAIN,
    }.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("GOCACHE", subprocess.check_output([build.find_go(), "env", "GOCACHE"], text=True, cwd="/").strip())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    package = "example.com/hello/cmd/hello"
    return build.Module(str(tmp_path / "source"), {"hello": package, "again": package})


def start(module: build.Module) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, module.name], cwd=REPOSITORY, text=True, stdout=subprocess.PIPE, start_new_session=True
    )


def test_two_builds_at_once_make_one(module):
    both = [start(module), start(module)]
    folders = {process.communicate()[0].strip() for process in both}
    assert folders == {str(module.folder)} and module.built()
    assert sorted(path.name for path in module.folder.iterdir()) == ["again", "hello"]
    assert subprocess.check_output([module.folder / "hello"], text=True) == "hello none\n"


def test_a_build_that_was_killed_leaves_nothing_that_looks_finished(module):
    killed = start(module)
    draft = module.folder.with_suffix(".unfinished")
    while not (draft / "hello").exists():
        assert killed.poll() is None
        time.sleep(0.005)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not module.built()
    assert build.build(module) == module.folder and module.built()


def test_what_is_built_is_known_by_its_versions(module):
    before = module.folder
    (module.source / "go.sum").write_text("\n")
    assert module.folder != before and module.version() == "v1.2.3"


def test_a_program_that_can_not_be_built_says_why(module):
    (module.source / "hello/cmd/hello/main.go").write_text("package main\n\nfunc main() { nonsense }\n")
    with pytest.raises(build.BuildError, match="undefined: nonsense"):
        build.build(module)
    assert not module.built()
