"""What a driver can do for a parked kernel: facts in, rung and reason out. Pure: who asks the driver is no business of this module.

The broker asks it for the GPUs of its machine, a supervisor for its own kernel; so both say the same. It must never promise what
wasn't seen to work: where a fact is missing, the lower rung counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .model import Rung

PARKS = (575, 57, 8)  # the first that restores in a container which sees some of the machine's GPUs (NVIDIA/cuda-checkpoint#24)
MOVES = (580,)  # the first that restores on another GPU (cuda.h of CUDA 13.0)
MACHINES = ("x86_64", "AMD64")  # checkpointing on arm64 answers "not supported" (NVIDIA/cuda-checkpoint#51)


@dataclass(frozen=True)
class Facts:
    """What is known of a GPU, its driver and the kernel that would be parked."""

    driver: str = ""  # "580.65.06"; "": no driver answers
    machine: str = "x86_64"  # platform.machine()
    checkpoints: bool = True  # the driver's library has the checkpoint calls
    mig: bool = False  # the GPU is split into MIG partitions
    vgpu: bool = False  # the GPU is virtual, a part of the host's
    mps: bool = False  # processes share the GPU through MPS
    count: int = 1  # GPUs of one lease
    masked: bool = False  # the kernel sees some of the machine's GPUs only
    keeps: str = ""  # why this kernel's state was seen to stay where it is, "" if it wasn't
    stays: str = ""  # why this kernel's state was seen not to move to another GPU


def version(text: str) -> tuple[int, ...]:
    """ "580.65.06" as numbers that can be compared; () for what isn't a version."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


def rung(facts: Facts) -> tuple[Rung, str]:
    """``(rung, why not a better one)``, the reason with its remedy where there is one; "" at the top."""
    has = version(facts.driver)
    for cant, reason in (
        (not has, "no NVIDIA driver answers"),
        (facts.machine not in MACHINES, f"NVIDIA's driver doesn't checkpoint on {facts.machine}"),
        (facts.mig, "a MIG partition: the driver doesn't checkpoint those"),
        (facts.vgpu, "a virtual GPU (vGPU): the driver doesn't checkpoint those"),
        (facts.mps, "shared through MPS, whose clients can't be checkpointed"),
        (has < PARKS, f"driver {facts.driver}: parking needs {_text(PARKS)} or newer"),
        (not facts.checkpoints, f"libcuda of driver {facts.driver} has no checkpoint calls: is it an older driver's?"),
        (facts.count > 1 and has < MOVES, f"driver {facts.driver}: parking {facts.count} GPUs at once needs {_text(MOVES)} or newer"),
        (bool(facts.keeps), facts.keeps),
    ):
        if cant:
            return Rung.EXCLUSIVE, reason
    for cant, reason in (
        (has < MOVES, f"driver {facts.driver}: resuming on another GPU needs {_text(MOVES)} or newer"),
        (
            facts.masked,
            "CUDA_VISIBLE_DEVICES hides the other GPUs, so the state can't move there (ElasticGateway.visible_devices = 'all' shows them)",
        ),
        (bool(facts.stays), facts.stays),
    ):
        if cant:
            return Rung.SAME_GPU, reason
    return Rung.ANYWHERE, ""


def _text(numbers: tuple[int, ...]) -> str:
    return ".".join(f"{number:02}" if at else str(number) for at, number in enumerate(numbers))
