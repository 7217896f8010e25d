"""The on-demand broker: ``jupyter elastic-gateway broker``, or started by the first kernel that finds no broker.

It leases GPUs to the kernels of papermill, nbclient and plain Jupyter servers, reads the machine's configuration, makes way for a
gateway, and ends by itself when nobody needs it. It must never start or end a kernel.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from typing import Any

from jupyter_core.application import JupyterApp
from traitlets import default

from .. import __version__, logs
from ..protocol.errors import ElasticError
from ..settings import ElasticGateway, Leases, LocalBackend, SimulatedGpu, StrictConfigFiles, Usage, config_stamp
from .broker import Broker
from .seat import BROKER, RUNS
from .usage import keep_usage

log = logging.getLogger("gateway.broker")

LOOK_SECONDS = 1.0  # between two looks at whether anybody still needs us
FIRST_SECONDS = 60.0  # for the first kernel to come


class BrokerApp(StrictConfigFiles, JupyterApp):
    """Leases GPUs until it isn't needed."""

    name = "jupyter-elastic-gateway"  # the configuration files are the gateway's
    version = __version__
    description = "Leases this machine's GPUs to kernels that no gateway started. Starts and ends by itself; there is no need to run it."
    classes = [ElasticGateway, Leases, Usage, SimulatedGpu, LocalBackend]

    @default("log_level")
    def _log_level(self) -> int:
        return logging.INFO

    def load_config_file(self, *args: Any, **kwargs: Any) -> None:
        self._read = config_stamp()  # before it is read, so that no change is missed
        super().load_config_file(*args, **kwargs)

    def start(self) -> None:
        super().start()
        logging.basicConfig(level=self.log_level, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
        logs.write_as(ElasticGateway(parent=self).log_format, [logging.getLogger()])
        try:
            asyncio.run(self._run())
        except ElasticError as exc:
            if exc.reason == RUNS:
                log.info("%s", exc)
                return
            log.critical("%s", exc)
            self.exit(1)

    def make_broker(self) -> Broker:
        broker = Broker(self, kind=BROKER)
        keep_usage(broker, Usage(parent=self))
        return broker

    async def _run(self) -> None:
        broker = self.make_broker()
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, broker.asked_to_end.set)
        read = self._read
        await broker.start()
        try:
            await needed(broker, LocalBackend(parent=self).broker_linger, lambda: config_stamp() != read)
        finally:
            await broker.stop()


async def needed(broker: Broker, linger: float, changed: Callable[[], bool]) -> None:
    """Returns when it was asked to end, has handed over, or has had no kernel but a gateway's for ``linger`` seconds (and a while
    at first: whoever started it is still starting a kernel); at once where its configuration has ``changed``: the next one, which
    whoever needs it starts, reads it."""
    patience, lonely = max(linger, FIRST_SECONDS), 0.0
    while lonely <= patience and not broker.asked_to_end.is_set() and broker.running:
        await asyncio.sleep(LOOK_SECONDS)
        was, broker.outdated = broker.outdated, changed()
        if broker.callers():
            patience, lonely = linger, 0.0
            if broker.outdated and not was:
                log.warning("The configuration has changed. It counts once the kernels served now have ended; until then, what was read.")
        elif broker.outdated:
            log.info("The configuration has changed and nobody is served: the next broker reads it.")
            return
        else:
            lonely += LOOK_SECONDS
