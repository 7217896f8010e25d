"""The on-demand broker as it is started: with the bursts of its machine beside it."""

from __future__ import annotations

from typing import Any

from ..broker.broker import Broker
from ..broker.process import BrokerApp
from ..settings import Bursts
from .bursts import host


class BurstingBrokerApp(BrokerApp):
    """Leases GPUs and keeps bursts until it isn't needed."""

    classes = [*BrokerApp.classes, Bursts]

    def make_broker(self) -> Broker:
        broker = super().make_broker()
        host(broker, self)
        return broker


def main(argv: list[str] | None = None) -> Any:
    return BurstingBrokerApp.launch_instance(argv)


if __name__ == "__main__":
    main()
