"""What hangs in a parked GPU is told from what sleeps, waits or works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.pod import stall
from gateway.pod.stall import Sample, Stalled, progress


def hung(samples: list[Sample], step: float = 0.25) -> list[bool]:
    watch = Stalled(1.0)
    return [watch.feed(sample, at * step) for at, sample in enumerate(samples)]


def test_no_processor_time_for_a_second_is_a_hang() -> None:
    assert hung([Sample(5.0, False)] * 6) == [False, False, False, False, True, True]


def test_a_cell_that_computes_is_no_hang() -> None:
    assert not any(hung([Sample(0.2 * n, False) for n in range(20)]))


def test_a_cell_that_sleeps_is_no_hang() -> None:
    assert not any(hung([Sample(5.0, True)] * 20))


def test_where_the_machine_does_not_tell_no_processor_time_is_enough() -> None:
    assert any(hung([Sample(5.0, None)] * 6))


def test_the_second_begins_anew_after_each_progress() -> None:
    samples = [Sample(5.0, False)] * 3 + [Sample(5.5, False)] * 4
    assert not any(hung(samples))
    assert hung([*samples, Sample(5.5, False)])[-1]


def test_a_sleep_in_between_begins_anew() -> None:
    assert not any(hung([Sample(5.0, False)] * 3 + [Sample(5.0, True)] + [Sample(5.0, False)] * 4))


def test_the_little_that_idle_threads_use_is_no_progress() -> None:
    assert hung([Sample(5.0 + 0.001 * n, False) for n in range(6)])[-1]


def test_a_child_that_ended_and_took_its_time_with_it_is_progress() -> None:
    assert not any(hung([Sample(5.0, False)] * 3 + [Sample(4.0, False)] * 3))


def test_a_process_that_is_gone_is_no_hang() -> None:
    assert not any(hung([Sample(5.0, False)] * 3 + [Sample(None, None)] * 9))


def test_cleared_it_knows_nothing_of_before() -> None:
    watch = Stalled(1.0)
    watch.feed(Sample(5.0, False), 0.0)
    watch.clear()
    assert not watch.feed(Sample(5.0, False), 10.0)


def test_a_living_process_has_processor_time() -> None:
    if not os.path.exists("/proc/self/stat"):
        pytest.skip("needs Linux: /proc tells what a process does")
    assert (progress(os.getpid()).processor or 0) > 0


def test_a_process_that_never_was_has_none() -> None:
    assert progress(2**22 + 1) == Sample(None, None)


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /proc of our own, on a machine of 100 ticks a second."""
    monkeypatch.setattr(stall, "PROC", str(tmp_path))
    monkeypatch.setattr(stall.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(stall.os, "sysconf", lambda name: 100)
    return tmp_path


def process(proc: Path, pid: int, ticks: tuple[int, int, int, int] = (0, 0, 0, 0), children: str = "", **files: str) -> None:
    (proc / f"{pid}/task/{pid}").mkdir(parents=True)
    (proc / f"{pid}/stat").write_text(f"{pid} (a (strange) name) S 1 1 1 0 -1 0 0 0 0 0 {' '.join(map(str, ticks))} 20 0 1 0 1")
    (proc / f"{pid}/task/{pid}/children").write_text(children)
    for name, text in files.items():
        (proc / f"{pid}/{name}").write_text(text)


def test_the_whole_tree_counts(proc: Path) -> None:
    process(proc, 10, (100, 50, 20, 30), "11 ")
    process(proc, 11, (100, 0, 0, 0), "12 ")
    process(proc, 12, (100, 0, 0, 0))
    assert progress(10).processor == 4.0


@pytest.mark.parametrize(
    ("call", "resting"),
    [
        ("running", False),
        ("230 0x1 0x1 0x7ffc 0x0 0x0 0x0 0x7ffc 0x7f5", True),  # clock_nanosleep
        ("232 0x3 0x7f26 0x1 0x7530 0x0 0x0 0x7ffc 0x7f5", True),  # epoll_wait
        ("61 0x5544 0x7ffc 0x0 0x0 0x0 0x0 0x7ffc 0x7f5", True),  # wait4
        ("202 0x55b5 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd 0x7f5", False),  # futex: a lock, or a driver
        ("16 0x5 0xc020 0x7ffc 0x0 0x0 0x0 0x7ffd 0x7f5", False),  # ioctl: a driver
        ("-1 0x7ffd 0x7f5", False),
        ("nonsense", None),
        ("", None),
    ],
)
def test_the_system_call_tells_sleep_from_hang(proc: Path, call: str, resting: bool | None) -> None:
    process(proc, 10, syscall=call)
    assert progress(10).resting is resting


@pytest.mark.parametrize(("target", "resting"), [("socket:[1]", True), ("/dev/pts/0", True), ("pipe:[2]", True), ("/data/huge.bin", False)])
def test_a_read_rests_if_others_write_when_they_please(proc: Path, target: str, resting: bool) -> None:
    process(proc, 10, syscall="0 0x3 0x55 0x2000 0x0 0x0 0x0 0x7f 0x7f")
    (proc / "10/fd").mkdir()
    (proc / "10/fd/3").symlink_to(target)
    assert progress(10).resting is resting


@pytest.mark.parametrize(
    ("place", "resting"), [("hrtimer_nanosleep", True), ("do_epoll_wait", True), ("do_wait", True), ("futex_do_wait", False), ("0", None)]
)
def test_on_other_machines_the_place_in_the_kernel_tells(
    proc: Path, monkeypatch: pytest.MonkeyPatch, place: str, resting: bool | None
) -> None:
    monkeypatch.setattr(stall.platform, "machine", lambda: "riscv64")
    process(proc, 10, syscall="101 0x0", wchan=place)
    assert progress(10).resting is resting


def test_a_zombie_makes_no_progress_and_hangs_in_nothing(proc: Path) -> None:
    process(proc, 10)
    (proc / "10/stat").write_text("10 (python) Z 1 1 1 0 -1 0 0 0 0 0 1 1 1 1 20 0 1 0 1")
    assert progress(10) == Sample(None, None)
