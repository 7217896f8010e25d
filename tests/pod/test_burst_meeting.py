"""Where ranks meet their agent, spoken to as a rank does."""

from __future__ import annotations

import json
import os
import selectors
import socket

from gateway.pod.burst.journal import Journal
from gateway.pod.burst.meeting import Meeting


def test_a_rank_that_is_quicker_than_its_agent_is_heard_to_its_end(tmp_path):
    selector, heard = selectors.DefaultSelector(), []
    meeting = Meeting(tmp_path / "s", selector, Journal(tmp_path / "journal", 1 << 20), lambda rank, event: heard.append(event["t"]))
    with socket.socket(socket.AF_UNIX) as rank:
        rank.connect(str(tmp_path / "s"))
        pipes = [os.pipe(), os.pipe()]
        socket.send_fds(rank, [b'{"t":"hello","rank":0,"pid":1}\n{"t":"no'], [reader for reader, _ in pipes])
        rank.sendall(b'te","text":"x"}\n{"t":"done"}\n')
        os.write(pipes[0][1], b"printed before")
        for ends in pipes:
            for end in ends:
                os.close(end)
    while ready := selector.select(0):
        for key, _ in ready:
            key.data()
    assert heard == ["hello", "note", "done"]
    assert meeting.all_done() and meeting.ranks[0].gone
    events = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
    assert [event["text"] for event in events] == ["printed before"]
    meeting.close()
