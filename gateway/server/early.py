"""What browsers sent before their kernel was up, and then left: their cells run all the same, and they find the output when they return.

It must never keep more than a few browsers' messages, nor send any twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..protocol.wire import Part

if TYPE_CHECKING:
    from ..broker.link import KernelLink

MOST_KEPT = 32  # browsers, each with what one may send that early


class Nobody:
    """A place on the line for a browser that isn't there."""

    def attached(self, n: int, lost: int, seen: int) -> None:
        pass

    def deliver(self, n: int, channel: str, parts: list[bytes]) -> None:
        pass

    def taken(self, m: int) -> None:
        pass

    def cut(self, reason: str) -> None:
        pass

    def lost(self, reason: str) -> None:
        pass


class Early:
    """Of one kernel."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, list[tuple[str, list[Part], int | None]], bool]] = []

    def keep(self, session: str, messages: list[tuple[str, list[Part], int | None]], forget: bool) -> None:
        """Channel, parts and number of each message of a browser that has left; ``forget``: it won't come back."""
        if len(self._kept) < MOST_KEPT:
            self._kept.append((session, messages, forget))

    def send(self, link: KernelLink) -> None:
        """The kernel is up."""
        kept, self._kept = self._kept, []
        for session, messages, forget in kept:
            nobody = Nobody()
            link.attach(session, nobody)  # so that it finds the output when it comes back
            for channel, parts, m in messages:
                link.send(session, channel, parts, m)
            link.detach(session, forget=forget, subscriber=nobody)
