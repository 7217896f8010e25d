"""RayJob of KubeRay (``ray.io``): a Ray cluster of the burst's pods, on whose head rank 0 runs the cell as Ray's driver. Pure.

Pods of Ray begin with Ray's own command, which KubeRay writes; the entrypoint is a constant, as KubeRay gives it to a shell.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from .....protocol.errors import BadRequest
from ...manifests import Object
from .parts import INDEX, Part, kept_seconds, metadata, only

SUBMITTER = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}


def rayjob(parts: Sequence[Part]) -> Object:
    """The head is one of the workers. Raises ``BadRequest`` where there are several roles."""
    part = only(parts, "RayJob")
    if part.procs > 1:
        raise BadRequest("Workers of a RayJob are nodes of Ray's, which has processes of its own: leave --procs out.")
    [container] = part.job["spec"]["template"]["spec"]["containers"]
    cluster: Object = {"headGroupSpec": {"rayStartParams": {}, "template": _template(part, "ray-head")}}
    if part.count > 1:
        more = part.count - 1
        group = {"groupName": part.name, "replicas": more, "minReplicas": more, "maxReplicas": more, "rayStartParams": {}}
        cluster["workerGroupSpecs"] = [{**group, "template": _template(part, "ray-worker")}]
    submitter = _template(part, "ray-job-submitter")
    submitter["spec"]["containers"][0]["resources"] = SUBMITTER
    spec: Object = {
        "suspend": True,
        "submissionMode": "K8sJobMode",
        "entrypoint": shlex.join(container["command"]),
        "backoffLimit": 0,
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": kept_seconds(parts),
        "rayClusterSpec": cluster,
        "submitterPodTemplate": submitter,
    }
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata(parts), "spec": spec}


def _template(part: Part, name: str) -> Object:
    template = part.template()
    template["spec"].pop("subdomain", None)
    [container] = template["spec"]["containers"]
    del container["command"]
    container["name"] = name
    if name == "ray-head":
        container["env"] = [*container["env"], {"name": INDEX, "value": "0"}]
    return template
