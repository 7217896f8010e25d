"""What the supervisor itself asks of a kernel, unseen by everybody: to look at its own GPUs alone, to let go of what it caches.

It goes through shell like a cell, so it never runs beside one. It must never leave a name in the user's namespace, start CUDA in
a process that has not, nor import anything that isn't imported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Callable

from ..protocol.wire import Part, loads
from .messages import Messages
from .reactor import Reactor

# Frameworks keep what they have freed; to the driver it is memory like any other, and would be carried along. A process that has
# not loaded the driver has nothing there, and is spared the garbage collection: some 40 ms of every hand-over.
_LET_GO = """
with open("/proc/self/maps") as maps:
    cuda = "libcuda.so" in maps.read()
if cuda:
    import gc, sys
    gc.collect()
    torch = getattr(sys.modules.get("torch"), "cuda", None)
    if torch is not None and torch.is_initialized():
        torch.empty_cache()
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()
"""


# How languages set a variable of their process's environment. Neither a name nor a GPU's has anything in it that would need quoting.
SETTING = {"bash": "export {}='{}'", "r": "Sys.setenv({}='{}')", "julia": 'ENV["{}"] = "{}";'}


def exposing(visible: Sequence[str], language: str) -> str:
    """Code after which frameworks that start now see exactly ``visible`` (GPU UUIDs, in this order) and take no more than they need; ""
    in a language that isn't known here."""
    exactly = {"CUDA_VISIBLE_DEVICES": ",".join(visible), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if language != "python":
        return "\n".join(SETTING[language].format(*pair) for pair in exactly.items()) if language in SETTING else ""
    return hidden(f"""
import os
os.environ.update({exactly!r})
for name, value in (("XLA_PYTHON_CLIENT_PREALLOCATE", "false"), ("TF_FORCE_GPU_ALLOW_GROWTH", "true")):
    os.environ.setdefault(name, value)
""")


def hidden(code: str) -> str:
    """Python that leaves no name in the user's namespace."""
    return f"exec({code!r}, {{}})"


def becoming(env: Mapping[str, str], without: Collection[str], cwd: str) -> str:
    """Code after which a kernel that was started for nobody has the environment and the folder of whoever claimed it."""
    return hidden(f"""
import os
for name in {sorted(without)!r}:
    os.environ.pop(name, None)
os.environ.update({dict(env)!r})
os.chdir({cwd!r})
""")


LET_GO = hidden(_LET_GO)


class Aside:
    """``send(parts)`` puts a message of our own on the kernel's shell."""

    def __init__(self, reactor: Reactor, messages: Messages, send: Callable[[list[Part]], None]) -> None:
        self._reactor, self._messages, self._send = reactor, messages, send
        self._waiting: dict[str, Callable[[bool], None]] = {}  # by msg_id

    def run(self, code: str) -> str:
        """Run it before whatever is sent after it; returns its msg_id."""
        content = {"code": code, "silent": True, "store_history": False, "user_expressions": {}, "allow_stdin": False,
                   "stop_on_error": False}  # fmt: skip
        parts = self._messages.make("execute_request", content)
        self._send(parts)
        return str(loads(parts[0])["msg_id"])

    def wait(self, code: str, patience: float, done: Callable[[bool], None]) -> None:
        """Run it; ``done(True)`` once the kernel is through with it, ``done(False)`` after so many seconds."""
        msg_id = self.run(code)
        self._waiting[msg_id] = done
        self._reactor.call_later(patience, lambda: self._end(msg_id, False))

    def replied(self, msg_id: str) -> None:
        """The kernel has answered one of the supervisor's own requests."""
        self._end(msg_id, True)

    def forget(self) -> None:
        """The kernel has ended: nobody will be called back."""
        self._waiting.clear()

    def _end(self, msg_id: str, replied: bool) -> None:
        done = self._waiting.pop(msg_id, None)
        if done is not None:
            done(replied)
