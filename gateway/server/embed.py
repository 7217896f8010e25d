"""The broker inside a server: the gateway's own, or a user's JupyterLab server that leases GPUs itself.

Both do the same steps in the same order. It must never leave a broker running that nobody stops.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_server.serverapp import ServerApp

from ..broker.broker import Broker
from ..broker.link import KernelLink
from ..broker.usage import keep_usage, usage_of
from ..burst.bursts import Bursts, host
from ..settings import ElasticGateway, Usage
from .events import emit_news
from .kernels import ElasticMappingKernelManager
from .metrics import ElasticMetrics

SERVICES = [
    "gateway.server.handlers",
    "gateway.server.channels",
    "gateway.server.gpu",
    "gateway.server.bursts",
    "gateway.server.events",
    "gateway.server.stock",
]  # modules with ``default_handlers``
LAB_SERVICES = [
    "gateway.server.channels",
    "gateway.server.gpu",
    "gateway.server.bursts",
]  # of a server that has sessions and kernels of its own


def make_broker(parent: ServerApp, kernels: ElasticMappingKernelManager, owner: str | None = None) -> Broker:
    """A broker that isn't started yet. ``owner``: the name its kernels carry, "" for kernels that end with this process."""
    broker = Broker(parent, ElasticGateway(parent=parent).name if owner is None else owner)
    kernels.elastic_broker = broker
    host(broker, parent)
    keep_usage(broker, Usage(parent=parent))
    emit_news(broker.news, parent.event_logger)
    return broker


async def start(broker: Broker, kernels: ElasticMappingKernelManager) -> Callable[[], None]:
    """Broker first, then the kernels of an earlier life. Returns what takes the metrics away. Raises ``ElasticError``."""
    await broker.start()

    def take_over(link: KernelLink) -> None:
        if not kernels.misses(link.kernel_id):
            return
        try:
            kernels.adopt(link)
        except Exception:
            kernels.log.exception("Kernel %s can't be taken over; it goes on, out of reach.", link.kernel_id)

    for link in broker.own():
        take_over(link)
    broker.on_found = take_over
    for spec in await broker.backend.unfinished():
        if spec.owner == broker.owner and kernels.misses(spec.kernel_id):
            kernels.go_on(spec)
    if broker.owner and broker.backend.remote:
        broker.backend.keep_warm(await kernels.templates())
    usage = usage_of(broker)
    bursts, rules = next((each for each in broker.beside if isinstance(each, Bursts)), None), broker.rules
    return ElasticMetrics(
        kernels.list_kernels, broker.snapshot, broker.backend.warm, usage.totals if usage else dict, broker.book.tally,
        kernels.start_counts, bursts.listing if bursts else list, lambda: bool(rules.error or rules.unkept),
    ).register()  # fmt: skip


async def stop(broker: Broker, kernels: ElasticMappingKernelManager, settings: dict[str, Any]) -> None:
    """Hang up everywhere; no kernel is ended."""
    for stream in list(settings.get("elastic_streams", ())):
        stream.close()
    kernels.detach_all()
    await broker.stop()


def token_file(broker: Broker) -> Path | None:
    """Where the token of one gateway is kept if nobody has set one. None: nowhere."""
    places = broker.backend.places
    return None if places is None else places.gateways / f"{broker.owner}.token"


def session_file(broker: Broker) -> str:
    """Where the sessions of one gateway are kept."""
    places = broker.backend.places
    return ":memory:" if places is None else str(places.gateways / f"{broker.owner}.sessions")
