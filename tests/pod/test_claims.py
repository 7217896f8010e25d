"""Host memory that several kernels want at the same moment, as they park."""

from __future__ import annotations

from pathlib import Path

from gateway.pod import claims
from gateway.pod.claims import Claims


class Time:
    """Passes by pausing; ``then`` is done in the first pause."""

    def __init__(self, then: object = None) -> None:
        self.now, self._then = 0.0, then

    def pause(self, seconds: float) -> None:
        self.now += seconds
        then, self._then = self._then, None
        if callable(then):
            then()

    def claims(self, folder: Path, name: str) -> Claims:
        return Claims(folder, name, self.pause, lambda: self.now)


def test_what_one_has_claimed_is_not_promised_to_another(tmp_path: Path) -> None:
    first, time = Time().claims(tmp_path, "1"), Time()
    assert first.claim(60, lambda: 100)
    assert not time.claims(tmp_path, "2").claim(60, lambda: 100)
    assert time.now > claims.PATIENCE
    assert [path.name for path in tmp_path.iterdir()] == ["1.parking"]


def test_whoever_waits_goes_on_once_there_is_room(tmp_path: Path) -> None:
    first = Time().claims(tmp_path, "1")
    first.claim(60, lambda: 100)
    time = Time(first.leave)
    assert time.claims(tmp_path, "2").claim(60, lambda: 100)
    assert time.now < 1


def test_both_have_room_where_there_is_enough(tmp_path: Path) -> None:
    assert all(Time().claims(tmp_path, name).claim(40, lambda: 100) for name in "12")


def test_of_two_that_wait_the_second_makes_room_for_the_first(tmp_path: Path) -> None:
    second = Time().claims(tmp_path, "2")
    seen: list[list[str]] = []
    holding = Time().claims(tmp_path, "3")
    holding.claim(50, lambda: 100)
    time = Time(lambda: seen.append(sorted(path.stem for path in tmp_path.iterdir())))
    assert not time.claims(tmp_path, "4").claim(60, lambda: 100)
    assert seen == [["3"]], "it keeps no claim while it waits"
    holding.leave()
    assert second.claim(60, lambda: 100)


def test_the_claim_of_one_that_was_killed_counts_no_more(tmp_path: Path) -> None:
    tmp_path.joinpath("1.parking").write_text('{"pid": 1, "who": "60", "since": "then"}')
    assert Time().claims(tmp_path, "2").claim(60, lambda: 100)
    assert [path.name for path in tmp_path.iterdir()] == ["2.parking"]


def test_where_the_folder_can_t_be_used_each_counts_for_itself(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert Time().claims(file, "1").claim(60, lambda: 100)
    assert not Time().claims(file, "1").claim(101, lambda: 100)


def test_more_than_there_is_is_refused_at_once(tmp_path: Path) -> None:
    time = Time()
    assert not time.claims(tmp_path, "1").claim(101, lambda: 100)
    assert time.now == 0
