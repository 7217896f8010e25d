"""Shows what a burst says in the cell that asked for it, also when other cells have run since.

One rank alone is shown as it prints, progress bars and all. Of several each line carries its rank, so that none is torn. It must never
print into another cell.
"""

from __future__ import annotations

import sys
import time
import uuid
from typing import Any, Optional

from ...protocol import burst

MOST = 1 << 16  # characters of one message
STATUS_SECONDS = 1.0  # between two updates of the status line


class Outlet:
    """``shown``: the ranks whose output is shown, None: all. ``voices``: how many there are."""

    def __init__(self, shell: Any, shown: Optional[tuple[int, ...]], voices: int) -> None:
        self._shell, self._shown = shell, shown
        self._tagged = voices > 1 and (shown is None or len(shown) > 1)
        self._parent = shell.parent_header if hasattr(shell, "parent_header") else {}
        self._rest: dict[tuple[str, str], str] = {}
        self._bar: Optional[tuple[str, str]] = None  # whose line with a progress bar is the last that is shown, and has no end yet
        self._stream, self._text, self._size = "", [], 0
        self._display_id = f"burst-{uuid.uuid4().hex[:12]}"
        self._status, self._status_at = "", 0.0
        # What stands in for the notebook's own, as for `%%capture`, gets it
        self._streams = {
            name: stream for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)) if not hasattr(stream, "pub_thread")
        }
        publisher = getattr(shell, "display_pub", None)
        self._capturing = publisher if type(publisher).__name__ == "CapturingDisplayPublisher" else None
        sys.stdout.flush()
        sys.stderr.flush()

    def event(self, event: dict[str, Any]) -> None:
        """Show it, if it is to be shown; text may wait until ``flush``."""
        kind = event.get("t")
        if kind == burst.OUT:
            if self._shown is None or event["rank"] in self._shown:
                self._out(str(event.get("as") or event["rank"]), event["name"], event["text"])
        elif kind == burst.SHOW:
            if self._shown is None or event["rank"] in self._shown:
                self._display(str(event["msg_type"]), event["content"])
        elif kind == burst.NOTE:
            self.note(event["text"])

    def flush(self) -> None:
        if self._text:
            text, self._text, self._size = "".join(self._text), [], 0
            self._send("stream", {"name": self._stream, "text": text})

    def skip(self) -> None:
        """The beginning of what comes next is left out: what was begun before has no end."""
        self._rest.clear()

    def note(self, text: str) -> None:
        """A line of ours."""
        self._end_bar(unless=False)
        self._write("stderr", f"[{text}]\n")

    def end(self) -> None:
        """Lines that never got their end, too."""
        for (rank, name), rest in self._rest.items():
            if rest:
                self._line(rank, name, rest)
        self._rest.clear()
        self.flush()

    def status(self, text: str, now: bool = False) -> None:
        """The one line that tells how it goes. It is changed in place, and not too often."""
        at = time.monotonic()
        if text == self._status or (self._status and not now and at - self._status_at < STATUS_SECONDS):
            return
        kind = "update_display_data" if self._status else "display_data"
        self._status, self._status_at = text, at
        self.flush()
        self._send(kind, {"data": {"text/plain": text}, "metadata": {}, "transient": {"display_id": self._display_id}})

    # inside

    def _out(self, rank: str, name: str, text: str) -> None:
        if not self._tagged:
            self._write(name, text)
            return
        *lines, rest = (self._rest.pop((rank, name), "") + text).split("\n")
        for line in lines:
            self._line(rank, name, line)
        if rest:
            self._rest[rank, name] = rest if "\r" not in rest[:-1] else f"\r{_newest(rest)}"
            if rank == "0" and rest.startswith("\r"):
                self._progress(rank, name, _newest(rest))

    def _line(self, rank: str, name: str, line: str) -> None:
        """Of a progress bar, which overwrites itself, as it is in the end."""
        mine = self._bar == (rank, name)
        self._end_bar(unless=mine)
        self._write(name, f"{chr(13) if mine else ''}[{rank}] {_newest(line)}\n")

    def _progress(self, rank: str, name: str, text: str) -> None:
        """Of one rank alone, as it goes: several would overwrite one another."""
        self._end_bar(unless=self._bar == (rank, name))
        self._write(name, f"\r[{rank}] {text}")
        self._bar = (rank, name)

    def _end_bar(self, unless: bool) -> None:
        bar, self._bar = self._bar, None
        if bar is not None and not unless:
            self._write(bar[1], "\n")

    def _display(self, msg_type: str, content: dict[str, Any]) -> None:
        self._end_bar(unless=False)
        self.flush()
        if msg_type == "clear_output":
            if self._tagged:
                return  # it would take what the others have said
            self._status = ""  # its line goes too, and comes again
        self._send(msg_type, content)

    def _write(self, name: str, text: str) -> None:
        if name != self._stream:
            self.flush()
            self._stream = name
        self._text.append(text)
        self._size += len(text)
        if self._size > MOST:
            self.flush()

    def _send(self, msg_type: str, content: dict[str, Any]) -> None:
        kernel = getattr(self._shell, "kernel", None)
        if msg_type == "stream" and content["name"] in self._streams:
            self._streams[content["name"]].write(content["text"])
        elif self._capturing is not None and msg_type == "clear_output":
            self._capturing.clear_output(content["wait"])
        elif self._capturing is not None and "data" in content:
            self._capturing.publish(**content, update=msg_type == "update_display_data")
        elif kernel is None:  # no notebook: a terminal's IPython
            sys.stdout.write(content.get("data", {}).get("text/plain", "") + "\n")
        else:
            kernel.session.send(kernel.iopub_socket, msg_type, content, parent=self._parent, ident=msg_type.encode())


def _newest(line: str) -> str:
    """What of a line is to be seen that goes back to its beginning again and again."""
    return line.rstrip("\r").rpartition("\r")[2]
