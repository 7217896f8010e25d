"""Which process a rank in a pod of its own is, by engine. Pure.

Ranks meet at the address of rank 0's pod, which is known before any of them begins: a name would be unknown to the cluster's DNS for the
first seconds of a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...protocol.burst import Process
from ...protocol.errors import BadRequest
from ..record import Record
from .spmd import python

PORT = 29400  # at rank 0's address; each pod has all of its ports for itself
_WORKER = ["-m", "gateway.pod.burst.worker"]


def process(record: Record, request: dict[str, Any], rank: int, addresses: Sequence[str], port: int = PORT) -> Process:
    """``addresses``: of all ranks' pods. ``port``: where they meet. Raises ``BadRequest`` where the engine has no ranks in pods."""
    return IN_PODS[checked(record.engine)](record, request, rank, addresses, port)


def checked(engine: str) -> str:
    """Raises ``BadRequest``."""
    if engine not in IN_PODS:
        raise BadRequest(f"The engine {engine} runs on one machine; in pods, as here, there are {', '.join(IN_PODS)}: -e torch, say.")
    return engine


def _none(record: Record, request: dict[str, Any], rank: int, addresses: Sequence[str], port: int) -> Process:
    place = {"RANK": str(rank), "WORLD_SIZE": str(record.workers), "LOCAL_RANK": "0"}
    meeting = {"MASTER_ADDR": addresses[0], "MASTER_PORT": str(port)}
    return Process(argv=[*python(request), *_WORKER], env={**place, **meeting}, name=f"rank {rank}")


def _torch(record: Record, request: dict[str, Any], rank: int, addresses: Sequence[str], port: int) -> Process:
    launcher = ["torch.distributed.run", f"--nnodes={record.workers}", f"--node-rank={rank}", "--nproc-per-node=1", "--max-restarts=0",
                f"--master-addr={addresses[0]}", f"--master-port={port}", f"--rdzv-id={record.id}"]  # fmt: skip
    argv = [*python(request), "-m", *launcher, "--no-python", *python(request), *_WORKER]
    return Process(argv=argv, env={"TORCH_ELASTIC_WORKER_IDENTICAL": "1"}, name=f"torchrun of rank {rank}")


IN_PODS: dict[str, Callable[[Record, dict[str, Any], int, Sequence[str], int], Process]] = {"none": _none, "torch": _torch}
