"""How a kernel's Python is run, as its supervisor tells it without asking the kernel."""

from __future__ import annotations

import sys

import pytest

from gateway.pod.child import started
from gateway.pod.process import KernelProcess
from gateway.pod.python import as_started
from gateway.protocol.errors import ElasticError
from gateway.protocol.model import Spec


def spec(tmp_path, *argv: str, language: str = "python") -> Spec:
    return Spec("a-b", list(argv), {"PATH": "/nowhere", "MARK": "1"}, str(tmp_path), "key", language=language)


def test_it_is_what_the_process_was_started_with(tmp_path):
    mine = spec(tmp_path, sys.executable, "-c", "import time; time.sleep(600)")
    process = KernelProcess(tmp_path, mine)
    process.start()
    assert process.child is not None
    told = as_started(mine, process, "3.12.1+local")
    pid = process.child.pid
    assert (told["python"], told["version"], told["cwd"]) == (sys.executable, [3, 12, 1], str(tmp_path))
    assert (told["env"], told["pid"], told["started"]) == ({"PATH": "/nowhere", "MARK": "1"}, pid, started(pid))
    process.child.signal(9)
    while process.child.poll() is None:
        pass
    with pytest.raises(ElasticError) as refused:
        as_started(mine, process, "")
    assert refused.value.reason == "pending"


@pytest.mark.parametrize(
    ("argv", "language"), [(("bash", "-m", "bash_kernel"), "bash"), (("/usr/bin/env", "python"), "python"), (("python", "-m", "R"), "r")]
)
def test_a_kernel_that_is_no_python_or_not_started_as_one_is_refused_as_such(tmp_path, argv, language):
    mine = spec(tmp_path, *argv, language=language)
    with pytest.raises(ElasticError) as refused:
        as_started(mine, KernelProcess(tmp_path, mine), "")
    assert refused.value.reason == "not_python"
