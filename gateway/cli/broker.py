"""Lease this machine's GPUs to kernels that no gateway started. It starts and ends by itself; there is no need to run it."""

from __future__ import annotations


def start(argv: list[str]) -> int:
    """Settings as for the gateway, ``--Leases.idle_timeout=60``."""
    from ..burst.process import main

    main(argv)
    return 0
