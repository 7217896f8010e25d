"""TrainJob of Kubeflow Trainer v2 (``trainer.kubeflow.org``), with a TrainingRuntime of its own that has the whole of its pods. Pure.

A runtime of the site's would bring another image and no volumes of the kernel's; engines are started by our agent, so the runtime has
no policy of torch or MPI.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...manifests import Object
from .parts import Part, job_spec, metadata, only, renamed

API = "trainer.kubeflow.org/v1alpha1"
NODE = "node"  # of Trainer: the replicated Job, and the container in it, that train
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"


def trainjob(parts: Sequence[Part]) -> Object:
    """Raises ``BadRequest`` where there are several roles."""
    part, about = only(parts, "TrainJob"), metadata(parts)
    runtime = {"apiGroup": API.partition("/")[0], "kind": "TrainingRuntime", "name": about["name"]}
    spec = {"suspend": True, "runtimeRef": runtime, "trainer": {"numNodes": part.count}}
    return {"apiVersion": API, "kind": "TrainJob", "metadata": about, "spec": spec}


def runtime(parts: Sequence[Part]) -> list[Object]:
    """What has to be there before the TrainJob."""
    part, about = only(parts, "TrainJob"), metadata(parts)
    spec = renamed(job_spec(part), NODE)
    spec["template"]["spec"].pop("subdomain", None)
    for each in ("parallelism", "completions"):  # Trainer's, by numNodes
        spec.pop(each)
    template = {"metadata": {"labels": {ANCESTOR: "trainer"}}, "spec": spec}
    jobset = {  # no restarts, by default: a 0 would be dropped by Trainer's own update of the runtime, which is then refused as a change
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "replicatedJobs": [{"name": NODE, "template": template}],
    }
    return [{"apiVersion": API, "kind": "TrainingRuntime", "metadata": about,
             "spec": {"mlPolicy": {"numNodes": part.count}, "template": {"spec": jobset}}}]  # fmt: skip
