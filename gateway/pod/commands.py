"""What others tell a supervisor to do: the broker's orders, the owner's calls, the user's magics.

It must never do anything itself: it knows which part of the supervisor each word is meant for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional

from ..protocol.errors import BadRequest, WireError
from .python import as_started

if TYPE_CHECKING:
    from .proxy import Proxy

SIGINT, SIGKILL, SIGTERM = 2, 9, 15


def obey(proxy: Proxy, order: dict[str, Any]) -> None:
    """An order of the broker, newer than any before."""
    do, epoch = order["do"], order["epoch"]
    if do == "grant":
        if order["gpus"] and "simulated" in order:
            proxy.lease.suit(order["simulated"], order.get("lock_dir"))
        gpus, devices = order["gpus"], order.get("devices") or order["gpus"]
        if len(devices) != len(gpus):
            raise WireError(f"a grant of {len(gpus)} GPUs names {len(devices)} devices")
        visible = order.get("visible") or gpus
        if order.get("devices"):  # others know its GPUs by other names, so what else is to be seen is ours to tell
            visible = proxy.device.all_of_node(devices) if set(visible) > set(gpus) else devices
        proxy.lease.grant(gpus, visible, epoch, devices)
    elif do == "park":
        proxy.lease.park(epoch, str(order.get("why", "")))
    elif do == "deny":
        proxy.lease.deny(order["reason"], order["message"], epoch)
    elif do == "queue":
        proxy.waiting.placed(order)
    else:
        raise WireError(f"unknown order {do!r}")
    proxy.changed()


def call(proxy: Proxy, asked: dict[str, Any], later: Callable[[dict[str, Any]], None]) -> Optional[dict[str, Any]]:
    """A call of the owner or the gateway; returns the fields of its answer, or None: ``later`` gets them. Raises ``ElasticError``."""
    do = asked["do"]
    if do == "signal":
        signum = int(asked["signum"])
        proxy.interrupt() if signum == SIGINT else proxy.life.signal(signum, ends=signum in (SIGKILL, SIGTERM))
    elif do == "respawn":
        proxy.life.respawn(asked.get("argv"), asked.get("env"), asked.get("cwd"))
    elif do == "ends":
        proxy.life.ends(float(asked["within"]))
    elif do == "shutdown":
        proxy.life.end(float(asked["grace"])) if "grace" in asked else proxy.life.end()
    elif do == "environment":
        return {"env": proxy.spec.env}
    elif do == "python":
        info = proxy.answers.info.get("language_info", {})
        return as_started(proxy.spec, proxy.process, str(info.get("version", "")))
    elif do == "become":
        proxy.become(asked["whose"])
    elif do == "uses":
        proxy.device.uses(proxy.state.pid, float(asked["seconds"]), lambda used: later({"used": used}))
        return None
    elif do == "hold":
        return {"message": proxy.lease.hold(float(asked["seconds"]))}
    elif do == "release":
        return {"message": proxy.lease.release()}
    elif do == "notice":
        return {"shown": proxy.notice.say(str(asked["text"]), bool(asked["last"]))}
    else:
        raise BadRequest(f"unknown call {do!r}")
    return {}


def magic(proxy: Proxy, asked: dict[str, Any], later: Callable[[dict[str, Any]], None]) -> Optional[dict[str, Any]]:
    """A request of a magic in the kernel; returns the fields of its answer, or None: ``later`` gets the answer. Raises ``ElasticError``."""
    do, message = asked.get("do"), ""
    if do == "burst":
        proxy.link.ask(asked, later)
        return None
    if do == "hold":
        message = proxy.lease.hold(float(asked["seconds"]))
    elif do == "release":
        message = proxy.lease.release()
    elif do == "mode":
        enabled = asked["mode"] == "on"
        proxy.traffic.apply(proxy.gate.switch(enabled))
        message = "Cells that need a GPU ask for it again." if enabled else "No cell of this kernel asks for a GPU any more, until %gpu on."
    elif do == "simulate":
        if proxy.device.simulated is None:
            raise BadRequest("This kernel has no simulated GPU: its GPUs are real, or it has held none yet.")
        proxy.device.simulated.bytes = proxy.state.simulated_bytes = max(0, int(asked["bytes"]))
    elif do != "status":
        raise BadRequest(f"unknown request {do!r}")
    proxy.changed()
    mode = "on" if proxy.gate.enabled else "off"
    return {"message": message, "state": proxy.snapshot().to_json(), "mode": mode, **proxy.lease.describe()}
