"""A real kernel under a real supervisor on the double's machine, and the broker's line to it."""

from __future__ import annotations

import os
from pathlib import Path

from jupyter_client import BlockingKernelClient

from gateway.protocol.model import KernelState, Phase

from ..doubles.cuda import HERE, MIB
from .supervised import Dialer, Supervised, collect

GPU, CPU = "%%gpu\n", "%%cpu\n"
STATE = 64 * MIB + 300 * MIB


class Notebook:
    """One supervised kernel and the broker's line to it."""

    def __init__(self, argv: list[str] | None = None, language: str = "python", **env: str) -> None:
        env = {**os.environ, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1", **env}
        self.supervised = Supervised(argv, simulated=None, language=language, env=env)
        self.dialer: Dialer = self.supervised.dial()
        self.client: BlockingKernelClient = self.supervised.client()

    def run(self, code: str, *gpus: str, visible: tuple[str, ...] = ()) -> str:
        """The cell's text or its error; ``gpus`` are granted as soon as it asks."""
        msg_id = self.client.execute(code)
        if gpus:
            self.dialer.until(lambda s: s.lease.wanted)
            self.dialer.order("grant", gpus=list(gpus), visible=list(visible or gpus))
        return self.collect(msg_id)

    def collect(self, msg_id: str) -> str:
        reply, published = collect(self.client, msg_id)
        if reply["status"] == "error":
            return f"{reply['ename']}: {reply['evalue']}"
        return "".join(m["content"]["text"] for m in published if m["msg_type"] == "stream").strip()

    def park(self) -> KernelState:
        self.dialer.until(lambda s: s.lease.phase == Phase.HOLDING and not s.lease.executing)
        self.dialer.order("park")
        return self.answered()

    def answered(self) -> KernelState:
        ours = [self.dialer._generation, self.dialer._orders]
        return self.dialer.until(lambda s: (list(s.lease.order) == ours and s.lease.answer) or not s.alive)

    @property
    def helper(self) -> int:
        children = Path(f"/proc/{self.supervised.process.pid}/task/{self.supervised.process.pid}/children").read_text().split()
        return next(int(pid) for pid in children if b"gateway.pod.cuda.helper" in Path(f"/proc/{pid}/cmdline").read_bytes())
