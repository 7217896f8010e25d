"""The log as JSON: each entry is one line, and says which kernel and lease it is about."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from gateway.broker.news import KERNEL, News
from gateway.leases.journal import Entry
from gateway.logs import JsonLines, write_as

KERNEL_ID = "5b2f0c1e-6f0a-4b3e-9a51-0c9c2d9f1a77"


def entry(message: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    record = logging.getLogger("gateway.somewhere").makeRecord("gateway.somewhere", logging.WARNING, "", 0, message, args, None)
    vars(record).update(kwargs)
    text = JsonLines().format(record)
    assert "\n" not in text
    return json.loads(text)


def test_an_entry_has_time_level_logger_and_message():
    told = entry("node %s is\n%s", "n1", "drained")
    assert told.pop("time").endswith("Z")
    assert told == {"level": "warning", "logger": "gateway.somewhere", "message": "node n1 is\ndrained"}


@pytest.mark.parametrize("said", ["Kernel %s did not start", "the supervisor of kernel %s can't be reached"])
def test_an_entry_that_names_a_kernel_has_its_id(said: str):
    assert entry(said, KERNEL_ID)["kernel_id"] == KERNEL_ID


def test_an_error_has_its_traceback():
    try:
        raise ValueError("no")
    except ValueError:
        told = entry("failed", exc_info=sys.exc_info())
    assert "ValueError: no" in told["exception"]


def test_news_are_written_with_all_that_they_are_about(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    news = News(lambda: 3)
    news.leases([Entry("granted", KERNEL_ID, "ana", "torch", "n1", "a100", ("GPU-1",), 7, 1.5)])
    news.tell(KERNEL, "failed", kernel_id=KERNEL_ID, user="ana", message="no room")
    lease, failed = (json.loads(JsonLines().format(record)) for record in caplog.records)
    assert (lease["subject"], lease["action"], lease["kernel_id"], lease["lease_id"]) == ("lease", "granted", KERNEL_ID, "3-7")
    assert (lease["user"], lease["gpus"], lease["seconds"]) == ("ana", ["GPU-1"], 1.5)
    assert failed["message"] == f"kernel failed, kernel {KERNEL_ID}, of ana: no room"


def test_people_read_text_unless_json_is_asked_for():
    logger, handler = logging.Logger("x"), logging.StreamHandler()
    logger.addHandler(handler)
    write_as("text", [logger])
    assert handler.formatter is None
    write_as("json", [logger])
    assert isinstance(handler.formatter, JsonLines)
