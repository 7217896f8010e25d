"""``%gpu``: what is asked of the supervisor, and what the user reads."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from gateway.magics import supervisor as line
from gateway.magics.gpu import duration, size

from .conftest import Supervisor


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("%gpu", {"do": "status"}),
        ("%gpu status", {"do": "status"}),
        ("%gpu hold 30m", {"do": "hold", "seconds": 1800}),
        ("%gpu hold 1h 30m", {"do": "hold", "seconds": 5400}),
        ("%gpu hold 0s", {"do": "hold", "seconds": 0}),
        ("%gpu hold 30", {"do": "hold", "seconds": 30}),
        ("%gpu release", {"do": "release"}),
        ("%gpu off", {"do": "mode", "mode": "off"}),
        ("%gpu on", {"do": "mode", "mode": "on"}),
        ("%gpu simulate 4GB", {"do": "simulate", "bytes": 4_000_000_000}),
        ("%gpu simulate 1.5 GiB", {"do": "simulate", "bytes": 3 << 29}),
        ("gpu hold 45s", {"do": "hold", "seconds": 45}),
    ],
)
def test_what_is_typed_is_asked(shell: InteractiveShell, supervisor: Supervisor, typed: str, asked: dict[str, object]) -> None:
    assert shell.run_cell(typed).success
    assert supervisor.asked == [asked]


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"phase": "COLD"}, "Has held no GPU yet; the first GPU cell asks for one."),
        ({"phase": "HOLDING", "gpus": ["GPU-1"], "executing": True}, "Holds GPU-1."),
        ({"phase": "HOLDING", "gpus": ["GPU-1"], "idle_for": 30.0}, "Holds GPU-1; idle for 30 s."),
        ({"phase": "HOLDING", "gpus": ["GPU-1", "GPU-2"], "count": 2, "hold_for": 1700.0}, "Holds GPU-1 and GPU-2; kept for 28 min more."),
        (
            {"phase": "HOLDING", "gpus": ["GPU-1"], "rung": "anywhere"},
            "Holds GPU-1; parked, its state can come back to any GPU here.",
        ),
        (
            {"phase": "PARKED", "home": ["GPU-1"], "rung": "same-gpu", "rung_reason": "driver 575.57.08: too old"},
            "comes back with the next GPU cell; parked, its state comes back to the same GPU: driver 575.57.08: too old.",
        ),
        (
            {"phase": "COLD", "rung": "exclusive", "rung_reason": "a MIG partition"},
            "Has held no GPU yet; the first GPU cell asks for one; "
            "a GPU stays with this kernel until it ends or is restarted: a MIG partition.",
        ),
        ({"phase": "HOLDING", "rung": "exclusive", "rung_reason": "no driver"}, "to share here, so no cell waits for one."),
        (
            {"phase": "PARKING", "gpus": ["GPU-1"], "alarm": "NVIDIA's driver has not come back from this for 31 s: lock of process 7"},
            "Giving back GPU-1; NVIDIA's driver has not come back from this for 31 s: lock of process 7.",
        ),
        ({"phase": "HOLDING"}, "There is no GPU to share here, so no cell waits for one."),
        ({"phase": "WAITING"}, "Waits for a GPU."),
        (
            {"phase": "WAITING", "held": 3, "place": {"position": 2, "of": 5, "expected": 90.0}},
            "Waits for a GPU with 3 cells, place 2 of 5, about 90 s to go.",
        ),
        ({"phase": "RESUMING", "gpus": ["GPU-1"]}, "Coming back to GPU-1."),
        ({"phase": "PARKING", "gpus": ["GPU-1"]}, "Giving back GPU-1."),
        (
            {"phase": "PARKED", "parked_bytes": 4_000_000_000, "simulated_bytes": 4_000_000_000},
            "Holds no GPU now; its state is parked and comes back with the next GPU cell; "
            "4.0 GB of GPU memory parked in this machine's memory; pretends to use 4.0 GB of GPU memory.",
        ),
        ({"phase": "COLD", "fatal": True}, "what it had on the GPU is lost: restart the kernel."),
        ({"phase": "COLD", "mode": "off"}, "%gpu is off: no cell asks for a GPU until %gpu on."),
        ({"phase": "HOLDING", "count": 0}, "This kernel leases no GPU: its cells never wait."),
        ({"phase": "something newer"}, "Has held no GPU yet; the first GPU cell asks for one."),
    ],
)
def test_the_status_is_one_line_for_people(
    shell: InteractiveShell, supervisor: Supervisor, capsys: pytest.CaptureFixture[str], state: dict[str, object], text: str
) -> None:
    supervisor.says(**state)
    shell.run_cell("%gpu")
    printed = capsys.readouterr().out
    assert printed.endswith(text + "\n")
    assert printed.count("\n") == 1


def test_the_supervisors_sentence_is_shown_whether_it_agrees_or_not(
    shell: InteractiveShell, supervisor: Supervisor, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisor.answer = {"ok": False, "message": "This kernel holds no GPU now.", "reason": "not_holding"}
    assert shell.run_cell("%gpu release").success, "a notebook that is run as a whole goes on"
    assert capsys.readouterr().out == "This kernel holds no GPU now.\n"


@pytest.mark.parametrize(
    "typed",
    [
        *["%gpu hold", "%gpu hold -1m", "%gpu hold 1.2.3h", "%gpu hold 999h999h", "%gpu hold 500d", "%gpu hold soon"],
        *["%gpu simulate", "%gpu simulate much", "%gpu simulate -4GB", "%gpu simulate 9999999TB", "%gpu simulate .", "%gpu simulate ²GB"],
        *["%gpu frobnicate", "%gpu on fire", "%gpu release now"],
    ],
)
def test_a_word_it_does_not_know_is_answered_with_a_sentence(
    shell: InteractiveShell, supervisor: Supervisor, capsys: pytest.CaptureFixture[str], typed: str
) -> None:
    assert not shell.run_cell(typed).success
    said = capsys.readouterr()
    assert said.err.startswith("UsageError: %gpu")
    assert "Traceback" not in said.out + said.err
    assert supervisor.asked == []


def test_elsewhere_it_says_that_the_kernel_is_not_elastic(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_cell("%gpu hold 30m").success, "a notebook that is run elsewhere goes on"
    assert "doesn't run under the elastic gateway" in capsys.readouterr().out


@pytest.mark.parametrize("answer", [b"", b"{", b"[1]\n", b"\xff\n", b"x" * (2 << 20)])
def test_nonsense_from_the_socket_is_told_in_a_sentence(
    shell: InteractiveShell, supervisor: Supervisor, capsys: pytest.CaptureFixture[str], answer: bytes
) -> None:
    supervisor.answer = answer
    assert shell.run_cell("%gpu").success
    assert "doesn't answer" in capsys.readouterr().out


def test_a_silent_supervisor_is_not_waited_for(
    shell: InteractiveShell, supervisor: Supervisor, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert line.TIMEOUT <= 5
    monkeypatch.setitem(line.ask.__kwdefaults__, "timeout", 0.05)
    supervisor.answer = None
    assert shell.run_cell("%gpu").success
    assert "doesn't answer" in capsys.readouterr().out


def test_a_supervisor_that_is_gone_is_told(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTIC_SUPERVISOR", "/nowhere/magic.sock")
    assert shell.run_cell("%gpu").success
    assert "restart the kernel" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "length"),
    [("90s", 90), ("30m", 1800), ("30min", 1800), ("2h", 7200), ("1d", 86400), ("1h30m", 5400), ("1.5h", 5400), ("0s", 0)],
)
def test_durations_are_read_as_people_write_them(text: str, length: float) -> None:
    assert duration(text) == length


@pytest.mark.parametrize(
    ("text", "amount"), [("4gb", 4 * 10**9), ("4g", 4 * 10**9), ("512mib", 512 << 20), ("100", 100), ("2k", 2000), ("1tb", 10**12)]
)
def test_sizes_are_read_as_people_write_them(text: str, amount: int) -> None:
    assert size(text) == amount
