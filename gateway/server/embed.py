"""The broker inside a server: the gateway's own, or a user's JupyterLab server that leases GPUs itself.

Both do the same steps in the same order. It must never leave a broker running that nobody stops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..broker.broker import Broker
from ..settings import ElasticGateway
from .kernels import ElasticMappingKernelManager
from .metrics import ElasticMetrics

SERVICES = ["gateway.server.handlers", "gateway.server.gpu"]
