"""The gateway's news as Jupyter events: every one fits its schema, and who hears which."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_events import EventLogger

from gateway.broker.news import BURST, KERNEL, LEASE, POLICY, SUBJECTS, News
from gateway.leases.journal import Entry
from gateway.server.access import ElasticAuthorizer
from gateway.server.events import SCHEMAS, EventsSocket, emit_news
from gateway.server.people import Person

ROOT = Path(__file__).parents[2]

ENTRY = Entry("granted", "k1", "ana", "torch", "n1", "a100", ("GPU-1",), 7, 1.5)
OTHERS = [
    (KERNEL, "cull_warned", {"kernel_id": "k1", "user": "ana", "kernelspec": "torch", "ends_at": "2030-01-01T00:00:00Z"}),
    (KERNEL, "started", {"kernel_id": "k1", "user": "ana", "kernelspec": "torch", "seconds": 1.0}),
    (POLICY, "changed", {"source": "request", "by": "ops", "changes": {"idle_timeout": 5}}),
    (POLICY, "refused", {"source": "file", "message": "line 3: no."}),
    (BURST, "ended", {"burst_id": "b1", "name": "b", "kernel_id": "k1", "user": "ana", "engine": "none", "workers": 2, "gpus_per_worker": 0,
                      "reason": "ok", "message": ""}),
]  # fmt: skip


def emitted(tell: Any) -> list[dict[str, Any]]:
    """What a listener of all of the gateway's schemas hears."""

    async def story() -> list[dict[str, Any]]:
        heard: list[dict[str, Any]] = []
        events, news = EventLogger(), News(lambda: 3)
        emit_news(news, events)

        async def listener(logger: EventLogger, schema_id: str, data: dict[str, Any]) -> None:
            heard.append({"schema_id": schema_id, **data})

        events.add_listener(listener=listener)
        tell(news)
        await events.gather_listeners()
        return heard

    return asyncio.run(story())


def test_a_lease_is_told_with_an_id_that_has_the_brokers_generation():
    (event,) = emitted(lambda news: news.leases([ENTRY]))
    assert event["schema_id"] == SCHEMAS[LEASE]
    assert (event["action"], event["kernel_id"], event["user"], event["gpus"]) == ("granted", "k1", "ana", ["GPU-1"])
    assert (event["lease_id"], event["seconds"]) == ("3-7", 1.5)
    assert event["at"].endswith("Z")


def test_others_pods_that_take_a_gpu_are_nobodys_news():
    assert emitted(lambda news: news.leases([Entry("granted", "pod", "pod", "", "n1", "a100", ("GPU-1",), 1, 0.0)])) == []


@pytest.mark.parametrize(("subject", "action", "fields"), OTHERS, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_told_fits_its_schema(subject: str, action: str, fields: dict[str, Any], caplog: pytest.LogCaptureFixture):
    (event,) = emitted(lambda news: news.tell(subject, action, **fields))
    assert (event["schema_id"], event["action"]) == (SCHEMAS[subject], action)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def test_what_doesnt_fit_is_logged_and_harms_nobody(caplog: pytest.LogCaptureFixture):
    assert emitted(lambda news: news.tell(KERNEL, "flown away", kernel_id="k1", user="ana")) == []
    assert "somebody who listens to news failed" in caplog.text


def test_the_readme_names_each_schema_and_each_action():
    text = (ROOT / "README.md").read_text()
    events = EventLogger()
    emit_news(News(lambda: 1), events)
    for subject in SUBJECTS:
        assert f"`{subject}/v1`" in text, subject
        for action in events.schemas.get(SCHEMAS[subject])._schema["properties"]["action"]["enum"]:
            assert f"`{action}`" in text, f"{subject}: {action}"


# who hears which


def hears(asker: Person | None, schema: str, kernel: str = "", **data: Any) -> bool:
    socket = SimpleNamespace(
        kernel=kernel, authorizer=ElasticAuthorizer() if asker is not None else object(), current_user=asker,
        settings={"kernel_manager": SimpleNamespace(user_of=lambda kernel_id: {"k1": "ana"}.get(kernel_id, ""))},
    )  # fmt: skip
    return EventsSocket.meant(socket, schema, data)


ANA, BO, OPS = Person("ana"), Person("bo"), Person("ops", admin=True)
STOCK = "https://events.jupyter.org/jupyter_server/kernel_actions/v1"


@pytest.mark.parametrize("subject", [LEASE, KERNEL, BURST])
def test_users_hear_of_their_own_kernels_and_admins_of_all(subject: str):
    news = {"kernel_id": "k1", "user": "ana"}
    assert [hears(who, SCHEMAS[subject], **news) for who in (ANA, BO, OPS)] == [True, False, True]


def test_everybody_hears_of_new_rules():
    assert all(hears(who, SCHEMAS[POLICY], source="file", action="changed") for who in (ANA, BO, OPS))


def test_jupyter_servers_own_events_are_for_the_kernels_user_and_those_of_nobody_for_admins():
    assert [hears(who, STOCK, kernel_id="k1") for who in (ANA, BO, OPS)] == [True, False, True]
    assert [hears(who, STOCK, kernel_id="gone") for who in (ANA, BO, OPS)] == [False, False, True]
    assert [hears(who, STOCK, action="start") for who in (ANA, BO, OPS)] == [False, False, True]
    assert [hears(who, SCHEMAS[KERNEL], kernel_id="k9", user="") for who in (ANA, BO, OPS)] == [False, False, True]


def test_one_may_ask_for_a_single_kernel():
    assert hears(OPS, SCHEMAS[LEASE], kernel="k1", kernel_id="k1", user="ana")
    assert not hears(OPS, SCHEMAS[LEASE], kernel="k2", kernel_id="k1", user="ana")


def test_in_a_users_own_server_all_is_theirs():
    assert hears(None, SCHEMAS[LEASE], kernel_id="k1", user="ana")
