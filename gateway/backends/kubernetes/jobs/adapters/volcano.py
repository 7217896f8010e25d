"""Job of Volcano (``batch.volcano.sh``): a task for each role, all pods at once or none. Pure.

It can't be held back: its pods wait for the Secret that they mount.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...manifests import Object
from ..manifests import KUEUE_QUEUE
from .parts import INDEX, Part, kept_seconds, metadata

TASK_INDEX = "volcano.sh/task-index"  # label of a pod: its number within its task
SCHEDULER = "volcano"


def volcano(parts: Sequence[Part]) -> Object:
    """A pod that fails or is taken away ends all. A queue is one of Volcano's."""
    about = metadata(parts)
    queue = about["labels"].pop(KUEUE_QUEUE, "")
    spec: Object = {
        "schedulerName": SCHEDULER,
        "minAvailable": sum(part.count for part in parts),
        "maxRetry": 1,
        "ttlSecondsAfterFinished": kept_seconds(parts),
        "policies": [{"event": event, "action": "TerminateJob"} for event in ("PodFailed", "PodEvicted")],
        "tasks": [{"name": part.name, "replicas": part.count, "template": _template(part)} for part in parts],
    }
    if queue:
        spec["queue"] = queue
    priority = parts[0].job["spec"]["template"]["spec"].get("priorityClassName")
    if priority:
        spec["priorityClassName"] = priority
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": about, "spec": spec}


def _template(part: Part) -> Object:
    template = part.template()
    [container] = template["spec"]["containers"]
    field = {"fieldRef": {"fieldPath": f"metadata.labels['{TASK_INDEX}']"}}
    container["env"] = [*container["env"], {"name": INDEX, "valueFrom": field}]
    return template
