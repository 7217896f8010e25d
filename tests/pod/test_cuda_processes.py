"""Which processes are a kernel's, and how much host memory they may take."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.pod.headroom import host_headroom, killed_for_memory, limit
from gateway.pod.processes import alive, family, has_cuda

from .cuda_rig import Rig, needs_double

GROUPS = 3  # of the tree below, each with children
TREE = f"""
import os, sys, time
for each in range({GROUPS}):
    if os.fork() == 0:
        for child in range(16):
            if os.fork() == 0:
                break
        break
print(1, flush=True)
time.sleep(60)
"""


@pytest.fixture
def tree() -> Iterator[int]:
    """The root of 52 processes: one, three of its children, and sixteen of each of those."""
    process = subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout
    for _ in range(1 + GROUPS * 17):
        process.stdout.readline()
    yield process.pid
    os.killpg(process.pid, 9)
    process.wait()
    process.stdout.close()


def test_a_family_is_the_root_and_all_its_descendants_parents_first(tree: int) -> None:
    found = family(tree, "NO=MARK")
    assert len(found) == 52
    assert found[0][0] == tree
    assert all(alive(identity) for identity in found)


def test_a_process_id_that_is_used_again_is_another_process(tree: int) -> None:
    ((pid, start), *_) = family(tree, "NO=MARK")
    assert not alive((pid, start + 1))


def test_a_zombie_is_no_process() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert family(process.pid, "NO=MARK") == []
    process.wait()


def test_whatever_bears_the_kernels_mark_is_of_its_family() -> None:
    command, env = [sys.executable, "-c", "print(1, flush=True); input()"], {**os.environ, "MARK": "mine"}
    process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    assert [pid for pid, _ in family(1 << 22, "MARK=mine")] == [process.pid]
    process.communicate()


def test_no_mark_marks_nobody() -> None:
    assert family(1 << 22, "") == []


def test_only_a_process_that_has_loaded_the_driver_has_cuda() -> None:
    assert not has_cuda(os.getpid())


@needs_double
def test_a_program_on_the_double_has_cuda(rig: Rig) -> None:
    assert has_cuda(rig.program().pid)


# host memory


def machine(root: Path, cgroup: str, available: int = 64 << 20, **files: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    (root / "proc/meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable:    {available} kB\n")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("memory_", "memory.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_headroom_is_what_the_machine_has_where_there_is_no_limit(tmp_path: Path) -> None:
    assert host_headroom(root=machine(tmp_path, "0::/\n")) == 64 << 30


def test_headroom_counts_every_limit_above_a_process_and_gives_credit_for_file_pages(tmp_path: Path) -> None:
    files = {"a__memory_max": str(10 << 30), "a__memory_current": str(4 << 30), "a__memory_stat": f"anon 5\ninactive_file {1 << 30}\n",
             "a__b__memory_max": "max", "a__b__memory_current": "5"}  # fmt: skip
    assert host_headroom(root=machine(tmp_path, "0::/a/b\n", **files)) == 7 << 30


def test_headroom_in_a_container_is_that_of_its_own_group(tmp_path: Path) -> None:
    files = {"memory_max": str(2 << 30), "memory_current": str(3 << 30)}
    assert host_headroom(root=machine(tmp_path, "0::/\n", **files)) == 0


def test_headroom_knows_the_older_kind_of_groups(tmp_path: Path) -> None:
    files = {"memory__x__memory_limit_in_bytes": str(4 << 30), "memory__x__memory_usage_in_bytes": str(1 << 30)}
    assert host_headroom(root=machine(tmp_path, "9:cpu:/\n4:memory:/x\n0::/\n", **files)) == 3 << 30


def test_what_a_memory_limit_has_killed_is_counted_by_group_of_either_kind(tmp_path: Path) -> None:
    new = machine(tmp_path / "new", "0::/a\n", a__memory_events="oom 3\noom_kill 2\n", a__memory_max=str(1 << 30))
    [(group, count)] = killed_for_memory(root=new).items()
    assert (group.name, count, limit(group)) == ("a", 2, 1 << 30)
    old = machine(tmp_path / "old", "4:memory:/kubepods/x\n", memory__memory_oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    [(group, count)] = killed_for_memory(root=old).items()
    assert (group.name, count, limit(group)) == ("memory", 1, None)


def test_headroom_is_nothing_where_nothing_is_known(tmp_path: Path) -> None:
    assert host_headroom(root=tmp_path) == 0


def test_a_process_lives_until_the_last_of_its_threads_has_ended() -> None:
    number = {"x86_64": 60, "aarch64": 93}[platform.machine()]  # exit, of one thread alone
    code = (
        f"import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); ctypes.CDLL(None).syscall({number}, 0)"
    )
    program = subprocess.Popen([sys.executable, "-c", code])
    try:
        stat = Path(f"/proc/{program.pid}/stat")
        while ") Z" not in stat.read_text():
            time.sleep(0.01)
        identity = (program.pid, int(stat.read_text().rpartition(") ")[2].split()[19]))
        assert alive(identity)
    finally:
        program.kill()
        program.wait()
    assert not alive(identity)
