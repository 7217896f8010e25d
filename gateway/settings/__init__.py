"""Every knob of the gateway, declared once: unit, default, why, and what None and 0 mean.

A setting is read where it is used, through these classes alone; this module must never read the environment at import, nor
decide anything: it only says what the administrator wants.
"""

from __future__ import annotations

from ..traits import MOST, Bytes, Choice, Count, Name, Priority, QuietHours, Seconds, Share
from .backends import KubernetesBackend, Launching, LocalBackend
from .bursts import Bursts
from .files import StrictConfigFiles, config_stamp, machine_config
from .leases import Leases, SimulatedGpu
from .site import ElasticGateway, Usage

__all__ = [
    "MOST", "Bursts", "Bytes", "Choice", "Count", "ElasticGateway", "KubernetesBackend", "Launching", "Leases", "LocalBackend",
    "Name", "Priority", "QuietHours", "Seconds", "Share", "SimulatedGpu", "StrictConfigFiles", "Usage", "config_stamp",
    "machine_config",
]  # fmt: skip
