"""No two kernels are on one GPU, whoever granted it."""

from __future__ import annotations

from pathlib import Path

from gateway.pod.possession import Possession


def test_a_kernel_that_is_on_a_gpu_keeps_every_other_off_it(tmp_path: Path) -> None:
    one, two = Possession(str(tmp_path / "l"), "kernel a of ada"), Possession(str(tmp_path / "l"), "kernel b of bob")
    assert one.take(["GPU-0"]) == ""
    assert two.take(["GPU-0"]).startswith("GPU-0 is in use by kernel a of ada (process ")
    one.leave()
    assert two.take(["GPU-0"]) == ""


def test_of_several_gpus_none_is_kept_where_one_is_taken(tmp_path: Path) -> None:
    one, two, three = (Possession(str(tmp_path / "l"), name) for name in "abc")
    assert one.take(["GPU-1"]) == ""
    assert "GPU-1" in two.take(["GPU-0", "GPU-1"])
    assert three.take(["GPU-0"]) == ""


def test_a_lock_that_was_tidied_away_is_made_anew(tmp_path: Path) -> None:
    one, two = Possession(str(tmp_path / "l"), "a"), Possession(str(tmp_path / "l"), "b")
    one.take(["GPU-0"])
    (tmp_path / "l/GPU-0.use").unlink()
    assert one.keep() == ""
    assert two.take(["GPU-0"])


def test_where_nobody_else_can_be_on_a_gpu_nothing_is_locked() -> None:
    assert [Possession(None, name).take(["GPU-0"]) for name in "ab"] == ["", ""]


def test_a_folder_that_can_not_be_used_is_said_and_the_gpu_left_alone(tmp_path: Path) -> None:
    (tmp_path / "l").write_text("")
    assert "lock_dir" in Possession(str(tmp_path / "l"), "a").take(["GPU-0"])
