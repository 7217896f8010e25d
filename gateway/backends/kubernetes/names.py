"""What objects in the cluster are called, and the labels by which they are found. Pure.

The same kernel always gives the same names, so that a crash never makes two of anything. No two users and no two kernels may ever
share a name, however odd they are called.
"""

from __future__ import annotations

import hashlib
import re

PREFIX = "elastic.jupyter.org"  # of our labels and annotations
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "jupyter-elastic-gateway"
GATEWAY, KERNEL, USER, ROLE = (f"{PREFIX}/{name}" for name in ("gateway", "kernel", "user", "role"))
ATTEMPT = f"{PREFIX}/attempt"  # annotation of a kernel's pod and Secret: which try to start it made them
WARM = f"{PREFIX}/warm"  # label of a kernel's pod that is nobody's yet
BURST = f"{PREFIX}/burst"  # label of all that is made for a burst: its id
FLEX = f"{PREFIX}/flex"  # label of a worker that an elastic burst has beyond its least: its number
PROCS = f"{PREFIX}/procs"  # annotation of a worker's pod that is several ranks: how many
FIRST = f"{PREFIX}/first"  # label of a role's Job and pods: the number of its first among all of the burst's
ROLE_KERNEL, ROLE_SLOT, ROLE_CODE, ROLE_RANK = "kernel", "slot", "code", "rank"

_NAME_MOST = 63 - len("kernel-") - len("-99")


def slug(text: str, most: int = 40) -> str:
    """A name that may stand in object names, labels and paths; different texts always give different ones.

    Only a text that is such a name already, and not too long, stays as it is.
    """
    if len(text) <= most and re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", text) and not re.search(r"--[0-9a-f]{10}$", text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[: most - 12].strip("-")
    return f"{plain}--{digest}" if plain else f"x--{digest}"


def kernel_pod(kernel_id: str, life: int = 1) -> str:
    """Of the kernel's pod, and of its Secret. ``life``: where the pod of an earlier one is lost with its node, and its name with it."""
    name = f"kernel-{slug(kernel_id, _NAME_MOST)}"
    return name if life == 1 else f"{name}-{life}"


def code(gateway: str, version: str) -> str:
    """Of the Secret with one version of our code. Each gateway has its own, so that none removes another's."""
    return f"code-{slug(gateway)}-{version}"


def slot_pod(kernel_id: str, generation: int, number: int) -> str:
    """Of a slot made for a kernel by the order ``generation.number``."""
    return f"slot-{slug(kernel_id, 36)}-{generation}-{number}"


def notes(gateway: str) -> str:
    """Of the Secret that keeps a gateway's small texts; its labels are no kernel's."""
    return f"elastic-gateway-{gateway}-notes"


def burst_job(burst_id: str) -> str:
    """Of a burst's Job, and of all that belongs to it. ``burst_id``: hexadecimal."""
    return f"burst-{burst_id}"


def selector(gateway: str | None = None, role: str | None = None) -> str:
    """A label selector for what we manage: of one gateway, of one role."""
    wanted = {MANAGED_BY: MANAGER, GATEWAY: gateway, ROLE: role}
    return ",".join(f"{label}={value}" for label, value in wanted.items() if value is not None)


def labels(gateway: str, role: str, kernel_id: str, user: str) -> dict[str, str]:
    return {MANAGED_BY: MANAGER, GATEWAY: gateway, ROLE: role, KERNEL: slug(kernel_id, 63), USER: slug(user or "nobody")}
