"""Which gateway runs here, its GPUs, and how many kernels hold, park and wait."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from . import client, show

arguments = client.arguments

RUNGS = {"anywhere": "resumes anywhere", "same-gpu": "resumes on this one", "exclusive": "can't park"}
FREE = {"kernel_id": "", "user": ""}


def run(args: argparse.Namespace) -> int:
    lessor = client.lessor(args)
    state = lessor.snapshot()
    if args.json:
        show.as_json({"url": lessor.url, **lessor.about(), **state})
        return 0
    phases = Counter(lease["phase"] for lease in state["leases"])
    counts = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items())) or "none"
    print(f"{led_by(lessor)}\nKernels: {counts}\nWaiting: {len(state['queue'])}")
    if drained := state.get("drained"):
        print(f"Drained: {', '.join(drained)} (no kernel starts and no GPU is leased there)")
    print()
    holders = {uuid: lease for lease in state["leases"] for uuid in lease["gpus"]}
    rows = [row(gpu, holders.get(gpu["uuid"], FREE)) for gpu in state["gpus"]]
    show.table(("GPU", "MEMORY", "KIND", "WHEN PARKED", "HELD BY", "USER", "NODE"), rows, none="No GPU: cells never wait.")
    return 0


def led_by(lessor: client.Lessor) -> str:
    about = lessor.about()
    if about["kind"] == client.GATEWAY:
        return f"GPUs are leased by {lessor.url}"
    text = f"No gateway runs. GPUs are leased by the broker for processes without one (process {about['pid']}, {lessor.url})"
    return f"{text}\nIts configuration has changed: that counts once the kernels it serves have ended" if about.get("outdated") else text


def row(gpu: dict[str, Any], holder: dict[str, Any]) -> tuple[Any, ...]:
    kind = f"{gpu['flavor']} (simulated)" if gpu["simulated"] and gpu["flavor"] != "simulated" else gpu["flavor"]
    return (
        gpu["uuid"],
        show.size(gpu["memory_bytes"]),
        kind,
        RUNGS.get(gpu["rung"], gpu["rung"]),
        show.short(holder["kernel_id"]) or "free",
        holder["user"],
        gpu["node"],
    )
