"""The life of a supervisor's kernel: one process after another, each met, reaped and cleared away; and the end, of it and of all.

It must never start a process while another lives, nor say that one has ended while something of it may be on a GPU.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Optional

from ..protocol.errors import LaunchError, cause
from .back import Back
from .child import Child
from .greeting import Greeting

if TYPE_CHECKING:
    from .proxy import Proxy

log = logging.getLogger("supervisor")

GRACE = 3.0  # seconds between SIGTERM and SIGKILL at the end


class Life:
    """``closing``: the end of the process that runs was asked for, ``restarting`` and ``shut_down``: with or without another after it.
    ``ending``: the supervisor's own. ``clearing``: the process has ended, and what it has left on its GPU is being ended."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy, self._traffic = proxy, proxy.traffic
        self._reactor, self._process, self._state, self._changed = proxy.reactor, proxy.process, proxy.state, proxy.changed
        self._gate, self._device, self._lease, self._cells, self._aside = proxy.gate, proxy.device, proxy.lease, proxy.cells, proxy.aside
        self._front, self._messages, self._answers = proxy.front, proxy.messages, proxy.answers
        self.closing = self.restarting = self.shut_down = self.ending = self.clearing = False
        self.killed = ""  # why we have killed it, "" where we haven't

    # the process

    def begin(self) -> None:
        """A process has been started: meet it."""
        child = self._process.child
        assert child is not None
        state, proxy = self._state, self._proxy
        state.alive, state.ready, state.exit_code, state.pid = True, False, None, child.pid
        state.starts = self._process.starts
        self.closing = self.restarting = self.shut_down = False
        self._traffic.lost_idle.forget()
        self.killed = ""
        self._traffic.back = Back(
            proxy.context, self._reactor, self._process.info, proxy.signer, self._traffic.answered, self._traffic.published
        )
        if child.pidfd is not None:
            self._reactor.add(child.pidfd, self.reap)
        self._traffic.greeting = Greeting(self._reactor, self._traffic.ask_kernel_info, self._kernel_ready)
        self._traffic.greeting.begin()
        self._changed()

    def _kernel_ready(self) -> None:
        self._state.ready = True
        self._process.came_up()
        self._process.show()
        # front ends look away from the idle of many a request, kernel_info too
        self._answers.publish(self._messages.status("idle"), "status")
        self._traffic.apply(self._gate.kernel_ready())
        self._changed()

    def reap(self) -> None:
        """It may have ended: say so, and clear away what it has left."""
        child = self._process.child
        code = child.poll() if child and self._state.alive else None
        if child is None or code is None:
            return
        if child.pidfd is not None:
            self._reactor.remove(child.pidfd)
        self._traffic.greeting.end()
        self._process.came_up()
        late = self._device.freezes
        if not late:
            child.sweep()
        child.close()
        self._traffic.back.read_rest()  # its last output and answers
        self._state.alive = self._state.ready = False
        self._state.exit_code = code
        self._state.reason = "" if self.closing and not code else self.killed or child.reason(code)
        log.info("kernel process %d ended: %s", child.pid, self._state.reason or "as asked")
        for answered in self._traffic.idle.rest():
            self._traffic.give_up(*answered)
        told = f"{self._state.reason}\nWhat was in its memory is gone." if self._state.reason else ""
        self._traffic.apply(self._gate.gone(told, asked=self.closing))
        self._aside.forget()
        self._traffic.unanswered.forget()
        self._cells.reset()
        self.clearing = True
        self._lease.kernel_gone(lambda: self._cleared(child if late else None))

    def _cleared(self, left: Optional[Child]) -> None:
        """Nothing of the process that ended is on a GPU any more: only now others hear of its end."""
        if left is not None:
            left.sweep()
        self.clearing = False
        self._changed()
        if self.ending:
            self._reactor.stop()

    def respawn(self, argv: Optional[list[str]], env: Optional[dict[str, str]], cwd: Optional[str]) -> None:
        """The next kernel process, with whatever has changed. Raises ``LaunchError``."""
        if self._state.alive:
            raise LaunchError("The old kernel process has not ended yet: end it first.", reason="still_alive")
        self._traffic.back.close()
        try:
            self._process.prepare(self._front.connection)
            self._process.respawn(argv, env, cwd)
        except OSError as exc:
            raise LaunchError(f"The kernel could not be started: {cause(exc, self._proxy.folder)}. Check its kernelspec.") from exc
        if not self.closing or self.shut_down:  # it is news of a death, so whoever has asked for a restart is not told
            self._answers.publish(self._messages.status("restarting"), "status", once=True)
        self.begin()

    # its end

    def signal(self, signum: int, ends: bool) -> None:
        """Any other signal; ``ends``: the kernel's end is asked for by it, as by a shutdown_request."""
        if ends:
            self.close()
        child = self._process.child
        if child is not None and ends:
            self._device.before_kill(child.pid, lambda: child.signal(signum))
        elif child is not None:
            child.signal(signum)

    def close(self) -> None:
        """Its end was asked for, so nothing goes to it any more, even if it only comes up now."""
        self.closing = True
        self._traffic.greeting.end()
        self._traffic.apply(self._gate.closing())

    def kill(self, why: str) -> None:
        """End the kernel process: nothing else helps. It was not asked for, so people are told."""
        self.killed = why
        if self._process.child is not None:
            self._process.child.signal(9)

    def told_to_end(self) -> None:
        """By a signal: from the gateway, which has told the notebooks, or from a machine or cluster that takes the kernel away."""
        self._traffic.apply(self._gate.gone("The kernel was told to end (SIGTERM). What was in its memory is gone.", asked=False))
        self.end()

    def ends(self, within: float) -> None:
        """Whoever owns the kernel has begun to end it, and may be killed before it is through with that."""
        self._state.ending = True
        self._reactor.call_later(within, self.end)
        self._changed()

    def end(self, grace: float = GRACE) -> None:
        """End the kernel, politely for ``grace`` seconds, and then this process."""
        if self.ending:
            return
        self.ending = True
        self.close()
        child = self._process.child
        if child is None or (not self._state.alive and not self.clearing):
            self._reactor.stop()
        elif child.poll() is not None:
            self.reap()
        else:
            self._device.before_kill(child.pid, lambda: self._terminate(child, grace))

    def _terminate(self, child: Child, grace: float) -> None:
        child.signal(15, group=False)
        self._reactor.call_later(grace, lambda: child.signal(9))
        self._reactor.call_later(grace + 1.0, lambda: None if self.clearing else self._reactor.stop())
