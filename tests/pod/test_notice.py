"""The line that a notebook is shown while nothing runs in it."""

from __future__ import annotations

from typing import Any

from gateway.pod.gate import Request
from gateway.pod.messages import Messages
from gateway.pod.notice import Notice
from gateway.protocol.wire import dumps, loads


class Sheet:
    def __init__(self) -> None:
        self.shown: list[tuple[str, str, str, str]] = []  # type, id of the cell, display id, text
        self.notice = Notice(Messages(), self._publish)

    def _publish(self, parts: list[Any], msg_type: str) -> None:
        content = loads(parts[3])
        text, display = content["data"]["text/plain"], content["transient"]["display_id"]
        self.shown.append((msg_type, loads(parts[1])["msg_id"], display, text))

    def runs(self, msg_id: str, msg_type: str = "execute_request") -> None:
        self.notice.follow(Request(None, [dumps({"msg_id": msg_id})], msg_id, msg_type))


def test_it_stands_below_the_cell_that_ran_last_and_is_replaced():
    sheet = Sheet()
    sheet.runs("first")
    sheet.runs("second")
    sheet.runs("a question", "complete_request")
    assert sheet.notice.say("ends in 5 min", last=False)
    sheet.runs("third")
    assert sheet.notice.say("goes on", last=True)
    display = sheet.shown[0][2]
    assert sheet.shown == [
        ("display_data", "second", display, "ends in 5 min"), ("update_display_data", "second", display, "goes on")
    ]  # fmt: skip


def test_after_the_last_word_the_next_is_another_line():
    sheet = Sheet()
    sheet.runs("first")
    sheet.notice.say("goes on", last=True)
    sheet.runs("second")
    sheet.notice.say("ends in 5 min", last=False)
    assert [(each[0], each[1]) for each in sheet.shown] == [("display_data", "first"), ("display_data", "second")]


def test_where_no_cell_has_run_there_is_no_place_for_it():
    sheet = Sheet()
    assert not sheet.notice.say("ends in 5 min", last=False)
    assert sheet.shown == []
