"""Enterprise Gateway's kernelspecs, whose ``process_proxy`` says where kernels run, as kernelspecs of ours.

Theirs start a launcher script in a pod of an image; ours start the kernel itself, and the image is a profile's. It must never make a
kernelspec that can't run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

_ARGV = {
    "python": ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}", "--ext=gateway.magics"],
    "r": ["R", "--slave", "-e", "IRkernel::main()", "--args", "{connection_file}"],
}
_CLUSTERED = re.compile(r"spark|yarn|conductor", re.IGNORECASE)


@dataclass
class Made:
    """What became of one. ``spec`` None: it could not be translated, and ``told`` says why. ``image``: what its profile has to run."""

    spec: dict[str, Any] | None
    image: str = ""
    told: list[str] = field(default_factory=list)


def is_theirs(spec: dict[str, Any]) -> bool:
    return isinstance((spec.get("metadata") or {}).get("process_proxy"), dict)


def translate(spec: dict[str, Any], profile: str = "") -> Made:
    """``profile``: by whose image it is to run; "" leaves that to the site's default."""
    metadata = dict(spec["metadata"])
    proxy = metadata.pop("process_proxy")
    kind, config = str(proxy.get("class_name", "")).rpartition(".")[2], proxy.get("config") or {}
    argv = [str(word) for word in spec.get("argv", ())]
    if any(_CLUSTERED.search(word) for word in [kind, *argv, *map(str, spec.get("env") or ())]):
        return Made(None, told=[f"{kind or 'it'} runs kernels by Spark, YARN or Conductor, which are no backends of this gateway"])
    language = str(spec.get("language", "")).lower()
    ours = _ARGV.get(language)
    starts = any("{connection_file}" in word for word in argv)
    if ours is None and not starts:
        return Made(None, told=[f"how a kernel of {spec.get('language') or 'no language'} is started without its launcher isn't known"])
    made = Made({}, image=str(config.get("image_name", "")))
    made.spec = {**spec, "argv": argv if starts else list(ours or ()), "metadata": metadata}
    settings: dict[str, Any] = {"profile": profile} if profile else {}
    if language == "python":
        metadata["supported_encryption"] = "curve"
    metadata["kernel_provisioner"] = {"provisioner_name": "elastic-provisioner", "config": settings}
    for name, value in sorted(config.items()):
        if name == "image_name":
            if not profile:
                made.told.append(f"its image is {value}: a profile has to say so")
        else:
            made.told.append(f"{name} of its process_proxy does nothing here{_INSTEAD.get(name, '')}")
    return made


_INSTEAD = {
    "authorized_users": ": instead there is ElasticMappingKernelManager.allowed_users, for all kernelspecs",
    "unauthorized_users": ": instead there is ElasticMappingKernelManager.denied_users, for all kernelspecs",
    "executor_image_name": ", as it is for Spark",
    "remote_hosts": ", as there are no kernels by ssh",
    "port_range": ", as kernels answer on one line",
}


def profile_name(image: str) -> str:
    """A name for the profile of an image: ``elyra/kernel-py:3.2.3`` is ``kernel-py``."""
    name = re.sub(r"[^a-z0-9]+", "-", image.rsplit("/", 1)[-1].split("@")[0].split(":")[0].lower()).strip("-")
    return name[:40] or "imported"
