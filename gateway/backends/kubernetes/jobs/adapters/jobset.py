"""JobSet (``jobset.x-k8s.io``): a replicated Job for each role. Pure.

Its names in DNS are JobSet's own: ``<burst>-<role>-0-<rank>.<burst>``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...manifests import Object
from .parts import Part, job_spec, kept_seconds, metadata


def jobset(parts: Sequence[Part]) -> Object:
    """A Job that fails ends all: a cell is never begun a second time unasked."""
    about = metadata(parts)
    spec = {
        "suspend": True,
        "ttlSecondsAfterFinished": kept_seconds(parts),
        "failurePolicy": {"maxRestarts": 0},
        "successPolicy": {"operator": "All"},
        "network": {"enableDNSHostnames": True, "subdomain": about["name"], "publishNotReadyAddresses": True},
        "replicatedJobs": [{"name": part.name, "replicas": 1, "template": {"spec": _without_subdomain(job_spec(part))}} for part in parts],
    }
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": about, "spec": spec}


def _without_subdomain(spec: Object) -> Object:
    spec["template"]["spec"].pop("subdomain", None)
    return spec
