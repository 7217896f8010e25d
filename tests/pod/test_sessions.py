"""Whole and once, by numbers: sent, acknowledged, replayed, bounded."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.pod.sessions import Entry, Session, Sessions

WINDOW = 1 << 20


class Wire:
    """What has been put on its way, by session."""

    def __init__(self, budget: int = 1 << 20) -> None:
        self.sent: list[tuple[str, int, bytes]] = []
        self.sessions = Sessions(budget, self._send, self._note)

    def _send(self, session: Session, number: int, entry: Entry) -> None:
        self.sent.append((session.name, number, bytes(entry.parts[0])))

    def _note(self, dropped: Entry, missing: int) -> Entry:
        return Entry("iopub", [b"note %d" % missing], "stream")

    def attach(self, name: str, after: int | None = None, window: int = WINDOW, now: float = 0.0) -> Session:
        session = self.sessions.attach(name, b"dialer", after, window, now)
        self.sessions.pump(session)
        return session

    def say(self, text: str, to: str | None = None, msg_type: str = "stream") -> None:
        self.sessions.publish(Entry("iopub", [text.encode()], msg_type), to)

    def numbers(self, name: str) -> list[int]:
        return [number for who, number, _ in self.sent if who == name]

    def texts(self, name: str) -> list[bytes]:
        return [text for who, _, text in self.sent if who == name]


def test_output_reaches_every_session_and_a_reply_only_its_own() -> None:
    wire = Wire()
    wire.attach("a")
    wire.attach("b")
    wire.say("to all")
    wire.say("to a", to="a")
    assert wire.texts("a") == [b"to all", b"to a"] and wire.texts("b") == [b"to all"]


def test_what_was_not_acknowledged_is_sent_again_under_the_same_numbers() -> None:
    wire = Wire()
    wire.attach("a")
    for at in range(5):
        wire.say(str(at))
    wire.sessions.ack("a", 2, 1.0)
    wire.sessions.leave("a", 2.0)
    wire.say("while away")
    wire.sent.clear()
    wire.attach("a")
    assert wire.sent == [("a", 3, b"2"), ("a", 4, b"3"), ("a", 5, b"4"), ("a", 6, b"while away")]


def test_a_client_that_says_what_it_saw_gets_only_the_rest() -> None:
    wire = Wire()
    wire.attach("a")
    for at in range(5):
        wire.say(str(at))
    wire.sessions.leave("a", 1.0)
    wire.sent.clear()
    wire.attach("a", after=4)
    assert wire.numbers("a") == [5]


def test_what_a_browser_answers_by_hanging_up_is_not_sent_to_it_again() -> None:
    wire = Wire()
    wire.attach("a")
    wire.say("before")
    wire.sessions.publish(Entry("iopub", [b"restarting"], "status", once=True))
    wire.say("after")
    wire.sessions.leave("a", 1.0)
    wire.sent.clear()
    wire.attach("a")
    assert wire.sent == [("a", 1, b"before"), ("a", 3, b"after")]
    wire.sessions.ack("a", 3, 2.0)
    assert wire.sessions.held_bytes == 0


def test_what_is_sent_only_once_waits_for_a_browser_that_is_away() -> None:
    wire = Wire()
    wire.attach("a")
    wire.sessions.leave("a", 1.0)
    wire.sessions.publish(Entry("iopub", [b"restarting"], "status", once=True))
    wire.attach("a")
    assert wire.texts("a") == [b"restarting"]


def test_a_new_session_sees_nothing_of_the_past() -> None:
    wire = Wire()
    wire.attach("a")
    wire.say("past")
    wire.attach("b")
    assert wire.numbers("b") == []


def test_a_slow_reader_is_sent_no_more_than_its_credit_and_slows_nobody() -> None:
    wire = Wire()
    wire.attach("slow", window=1000)
    wire.attach("fast")
    for _ in range(10):
        wire.say("x" * 300)
    assert len(wire.numbers("slow")) == 2 and len(wire.numbers("fast")) == 10
    wire.sessions.ack("slow", 1, 1.0)
    assert wire.numbers("slow") == [1, 2, 3]


def test_one_message_may_be_larger_than_the_credit() -> None:
    wire = Wire()
    wire.attach("a", window=1000)
    wire.say("x" * 50_000)
    assert wire.numbers("a") == [1]


def test_a_reader_that_lets_its_credit_run_out_is_named_after_a_while() -> None:
    wire = Wire()
    wire.attach("a", window=1000)
    for _ in range(10):
        wire.say("x" * 300)
    assert wire.sessions.expire(now=10.0, absence=3600, patience=30) == []
    assert [s.name for s in wire.sessions.expire(now=31.0, absence=3600, patience=30)] == ["a"]


def test_an_absent_session_is_forgotten_in_the_end_and_its_bytes_with_it() -> None:
    wire = Wire()
    wire.attach("a")
    wire.say("x" * 1000)
    wire.sessions.leave("a", 10.0)
    wire.sessions.expire(now=3611.0, absence=3600, patience=30)
    assert not wire.sessions.all and wire.sessions.held_bytes == 0


def test_over_budget_old_text_is_dropped_first_and_the_loss_is_told_in_its_place() -> None:
    wire = Wire(budget=10_000)
    wire.attach("a")
    wire.sessions.leave("a", 0.0)
    wire.say("busy", msg_type="status")
    wire.say("picture", msg_type="display_data")
    for _ in range(20):
        wire.say("x" * 800)
    wire.say("idle", msg_type="status")
    wire.attach("a")
    texts = wire.texts("a")
    assert texts[:2] == [b"busy", b"picture"] and texts[-1] == b"idle"
    assert texts[2].startswith(b"note ") and texts.count(b"x" * 800) < 20
    assert sum(t.startswith(b"note ") for t in texts) == 1, "one run of loss is told once"
    assert wire.sessions.held_bytes <= 10_000


def test_the_told_loss_counts_every_dropped_byte() -> None:
    wire = Wire(budget=10_000)
    wire.attach("a")
    wire.sessions.leave("a", 0.0)
    for _ in range(200):
        wire.say("x" * 800)
    wire.attach("a")
    texts = wire.texts("a")
    assert int(texts[0].split()[1]) == 1000 * (200 - texts.count(b"x" * 800))


def test_a_status_or_reply_is_never_dropped() -> None:
    wire = Wire(budget=2000)
    wire.attach("a")
    wire.sessions.leave("a", 0.0)
    for at in range(50):
        wire.say(f"{at}", msg_type="status")
    wire.attach("a")
    assert wire.texts("a") == [b"%d" % at for at in range(50)]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["say", "ack", "drop", "return", "return-after"]), max_size=60), st.integers(300, 3000))
def test_whatever_happens_a_client_that_drops_repeats_sees_all_once_and_in_order(steps: list[str], window: int) -> None:
    wire = Wire()
    wire.attach("a", window=window)
    said, seen, last, here, read = 0, [], 0, True, 0
    for at, step in enumerate(steps):
        if step == "say":
            wire.say(str(said))
            said += 1
        elif step == "drop":
            wire.sessions.leave("a", at)
            wire.sent = wire.sent[: (read + len(wire.sent)) // 2 if here else len(wire.sent)]  # the end of what flew is lost
            here = False
        elif step.startswith("return"):
            wire.attach("a", after=last if step == "return-after" else None, window=window)
            here = True
        elif here:
            wire.sessions.ack("a", last, at)
        for _, number, text in wire.sent[read:]:
            if number > last:
                seen.append(text)
                last = number
        read = len(wire.sent)
    wire.attach("a", after=last, window=1 << 30)
    seen += [text for _, number, text in wire.sent[read:] if number > last]
    assert seen == [b"%d" % at for at in range(said)]
