"""How a supervisor starts and how a GPU is accounted for: the only rooms that know processes, drivers or a cluster."""

from __future__ import annotations

from traitlets.config import Config

from ..protocol.errors import SettingError
from ..settings import ElasticGateway, KubernetesBackend, LocalBackend, SimulatedGpu
from .base import Backend


def make_backend(config: Config) -> Backend:
    """The backend that the configuration asks for. Raises ``SettingError``."""
    gateway = ElasticGateway(config=config)
    if gateway.backend == "local":
        from .local import LocalMachine

        return LocalMachine(gateway, LocalBackend(config=config), SimulatedGpu(config=config))
    if gateway.backend == "kubernetes":
        from .kubernetes.cluster import KubernetesCluster

        return KubernetesCluster(gateway, KubernetesBackend(config=config), SimulatedGpu(config=config))
    raise SettingError(f"ElasticGateway.backend is {gateway.backend!r}, which this version doesn't have: set it to 'local'.")
