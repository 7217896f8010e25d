"""Messages of several parts, as pyzmq's own ways have them."""

from __future__ import annotations

import pytest
import zmq

from gateway.protocol import multipart

PARTS = [b"", b"a", memoryview(b"bcd")[1:], b"x" * 100_000, b""]


def test_what_is_sent_so_arrives_and_what_arrives_is_taken_so() -> None:
    context = zmq.Context()
    one, two = context.socket(zmq.DEALER), context.socket(zmq.DEALER)
    one.bind("inproc://here")
    two.connect("inproc://here")
    whole = [bytes(part) for part in PARTS]
    multipart.send(one, PARTS)
    assert two.recv_multipart() == whole
    multipart.send(two, [b"alone"])
    one.send_multipart(PARTS)
    assert (multipart.take(one), multipart.take(two)) == ([b"alone"], whole)
    with pytest.raises(zmq.Again):
        multipart.take(two)
    context.destroy(0)


def test_where_nobody_is_no_part_is_sent() -> None:
    context = zmq.Context()
    one, two = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    one.bind("inproc://here")
    with pytest.raises(zmq.Again):
        multipart.send(one, [b"lost", b"whole"], multipart.NOW)
    two.connect("inproc://here")
    multipart.send(one, [b"a", b"b"])
    assert two.recv_multipart() == [b"a", b"b"]
    context.destroy(0)


def test_its_numbers_are_those_of_the_library() -> None:
    assert (multipart.NOW, multipart.MORE) == (zmq.DONTWAIT, zmq.SNDMORE)
