"""Enterprise Gateway's kernelspecs, whose ``process_proxy`` says where kernels run, as kernelspecs of ours.

Theirs start a launcher script in a pod of an image; ours start the kernel itself, and the image is a profile's. It must never make a
kernelspec that can't run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from .environment import names

_ARGV = {
    "python": ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}", "--ext=gateway.magics"],
    "r": ["R", "--slave", "-e", "IRkernel::main()", "--args", "{connection_file}"],
}
_HERE = {"LocalProcessProxy", "KubernetesProcessProxy", "DockerSwarmProcessProxy", "DockerProcessProxy"}
_NOWHERE = {
    "DistributedProcessProxy": "starts kernels by ssh",
    "YarnClusterProcessProxy": "starts kernels on YARN",
    "ConductorClusterProcessProxy": "starts kernels by Conductor",
    "CustomResourceProcessProxy": "starts kernels by a custom resource",
    "SparkOperatorProcessProxy": "starts kernels by Spark's operator",
}
# Their launchers have an option that speaks of Spark, also where it says that there is none.
_SPARK = re.compile(r"^SPARK_|[/_-]spark[_/]|spark-submit", re.IGNORECASE)
_USERS = {"authorized_users": "allowed_users", "unauthorized_users": "denied_users"}


@dataclass
class Made:
    """What became of one. ``spec`` None: it could not be translated, and ``told`` says why. ``image``: what its profile has to run."""

    spec: dict[str, Any] | None
    image: str = ""
    told: list[str] = field(default_factory=list)


def is_theirs(spec: dict[str, Any]) -> bool:
    metadata = spec.get("metadata")
    return isinstance(metadata, dict) and "process_proxy" in metadata


def image(spec: dict[str, Any]) -> str:
    """The image that one of theirs names; "" for none."""
    proxy = spec["metadata"]["process_proxy"]
    config = proxy.get("config") if isinstance(proxy, dict) else None
    return str(config.get("image_name") or "") if isinstance(config, dict) else ""


def translate(spec: dict[str, Any], profile: str = "") -> Made:
    """``profile``: by whose image it is to run; "" leaves that to the site's default."""
    metadata = dict(spec["metadata"])
    proxy = metadata.pop("process_proxy")
    broken = _broken(spec, proxy)
    if broken:
        return Made(None, told=[broken])
    kind, config = proxy.get("class_name", "").rpartition(".")[2], proxy.get("config") or {}
    argv = list(spec.get("argv") or ())
    if kind in _NOWHERE:
        return Made(None, told=[f"{kind} {_NOWHERE[kind]}, which is no backend of this gateway"])
    if any(_SPARK.search(word) for word in [*argv, *(spec.get("env") or ())]):
        return Made(None, told=["it is a kernel of Spark, which is no backend of this gateway"])
    language = str(spec.get("language", "")).lower()
    ours = _ARGV.get(language)
    starts = any("{connection_file}" in word for word in argv)
    if ours is None and not starts:
        return Made(None, told=[f"how a kernel of {spec.get('language') or 'no language'} is started without its launcher isn't known"])
    made = Made({}, image=image(spec))
    if kind not in _HERE:
        made.told.append(
            f"{kind or 'no class'} is none of Enterprise Gateway's process proxies: it runs as any kernel of this gateway does"
        )
    made.spec = {**spec, "argv": argv if starts else list(ours or ()), "metadata": metadata}
    settings: dict[str, Any] = {"profile": profile} if profile else {}
    if language == "python":
        metadata["supported_encryption"] = "curve"
    metadata["kernel_provisioner"] = {"provisioner_name": "elastic-provisioner", "config": settings}
    for name, value in sorted(config.items()):
        if name in _USERS:
            metadata[_USERS[name]] = names(value)
        elif name == "image_name":
            if not profile:
                made.told.append(f"its image is {value}: a profile has to say so")
        else:
            made.told.append(f"{name} of its process_proxy does nothing here{_INSTEAD.get(name, '')}")
    return made


def _broken(spec: dict[str, Any], proxy: Any) -> str:
    """Why a stanza, or what belongs to it, can't be read; "" where it can."""
    if not isinstance(proxy, dict):
        return "its process_proxy is no object"
    config = proxy.get("config") or {}
    if not isinstance(proxy.get("class_name", ""), str) or not isinstance(config, dict):
        return "class_name of its process_proxy must be text, config an object"
    for name in _USERS:
        value = config.get(name, "")
        if not isinstance(value, str) and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
            return f"{name} of its process_proxy must be names, separated by commas"
    argv = spec.get("argv", [])
    if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
        return "its argv must be a list of words"
    return "" if isinstance(spec.get("env", {}), dict) else "its env must be an object"


_INSTEAD = {
    "executor_image_name": ", as it is for Spark",
    "remote_hosts": ", as there are no kernels by ssh",
    "port_range": ", as kernels answer on one line",
}


def profile_name(image: str) -> str:
    """A name for the profile of an image: ``elyra/kernel-py:3.2.3`` is ``kernel-py``."""
    name = re.sub(r"[^a-z0-9]+", "-", image.rsplit("/", 1)[-1].split("@")[0].split(":")[0].lower()).strip("-")
    return name[:40] or "imported"
