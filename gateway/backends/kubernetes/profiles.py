"""What administrators say of kernel pods: profiles, checked once when the gateway starts. Pure.

A client's request chooses among what a profile leaves open, by ``KERNEL_*`` names that the profile lists. It must never reach the
namespace, service account, security context or host of a pod.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

from ...protocol.errors import BadRequest, SettingError

SEES = ("runtime", "claim", "life")

_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|)")
_UNITS = {"m": Decimal("0.001"), "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15} | {
    f"{letter}i": 1024**power for power, letter in enumerate("KMGTP", 1)
}
_VOLUME_KEYS = frozenset({"name", "mount_path", "sub_path", "read_only"})
SPOT = {
    "karpenter.sh/capacity-type": "spot", "eks.amazonaws.com/capacityType": "SPOT", "cloud.google.com/gke-spot": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
}  # fmt: skip
_OVERRIDES = ("KERNEL_IMAGE", "KERNEL_CPU", "KERNEL_MEMORY")


@dataclass(frozen=True)
class Profile:
    """How the pods of one kind of kernel look. Fields that hold Kubernetes objects hold them as Kubernetes has them.

    ``gpu_sees``: how a pod that requests no GPU sees its node's: "runtime", by the environment variable that NVIDIA's container
    runtime reads; "claim", by a resource claim with admin access (``gpu_claim`` names its template); "life": not at all, so the pod
    requests its GPUs itself and keeps them.
    """

    name: str = "default"
    image: str = ""
    pull_policy: str = "IfNotPresent"
    cpu: str = "1"  # request
    cpu_limit: str = ""  # "": none
    memory: str = "2Gi"  # request and limit
    parkable_memory: str = "0"  # on top of the limit, for state that left its GPU
    gpu_resource: str = ""  # e.g. nvidia.com/gpu; "": kernels of this profile never lease one
    gpu_sees: str = "runtime"
    gpu_claim: str = ""
    gpus: int = 1  # of one lease, and the most that KERNEL_GPUS may ask for
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    volumes: tuple[Mapping[str, Any], ...] = ()  # a volume source each, with name, mount_path, sub_path, read_only
    working_dir: str = "/tmp"  # where a notebook's folder isn't there
    env: Mapping[str, str] = field(default_factory=dict)
    run_as_user: int = 1000
    fs_group: int = 1000
    priority_class: str = ""
    flex_priority_class: str = ""  # of workers beyond the least of an elastic burst; "": as the others'
    spot_nodes: Mapping[str, str] = field(default_factory=lambda: dict(SPOT))  # labels, any of which tells a spot node
    spot_tolerations: tuple[Mapping[str, Any], ...] = ()
    runtime_class: str = ""
    pull_secrets: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)  # KERNEL_IMAGE: patterns; KERNEL_CPU, KERNEL_MEMORY: the most
    warm: int = 0  # started kernels that wait for somebody

    @property
    def for_life(self) -> bool:
        return bool(self.gpu_resource) and self.gpu_sees == "life"

    @property
    def memory_bytes(self) -> int:
        """The container's limit."""
        return quantity(self.memory) + quantity(self.parkable_memory)


def profiles(setting: Mapping[str, Any]) -> dict[str, Profile]:
    """Every profile by name. Raises ``SettingError`` naming profile and field."""
    if not setting:
        raise SettingError("KubernetesBackend.profiles is empty: name at least one profile, with its image.")
    return {name: _profile(name, fields_) for name, fields_ in setting.items()}


def chosen(profile: Profile, env: Mapping[str, str]) -> Profile:
    """The profile with what a request may change. Raises ``BadRequest`` naming the variable and what would be accepted."""
    changed: dict[str, Any] = {}
    for variable, attribute in zip(_OVERRIDES, ("image", "cpu", "memory"), strict=True):
        wish = env.get(variable, "").strip()
        if not wish or wish == getattr(profile, attribute):
            continue
        if variable not in profile.overrides:
            raise BadRequest(
                f"{variable} can't be chosen for kernels of the profile {profile.name!r}: leave it out, or ask the administrator."
            )
        limit = profile.overrides[variable]
        if variable == "KERNEL_IMAGE":
            if not any(fnmatchcase(wish, pattern) for pattern in limit):
                raise BadRequest(f"KERNEL_IMAGE is {wish[:80]!r}: the profile {profile.name!r} lets in {', '.join(limit)}.")
        elif not _QUANTITY.fullmatch(wish) or not 0 < quantity(wish) <= quantity(limit):
            raise BadRequest(f"{variable} is {wish[:40]!r}: it must be a quantity such as {getattr(profile, attribute)}, at most {limit}.")
        changed[attribute] = wish
    return Profile(**{**{each.name: getattr(profile, each.name) for each in fields(Profile)}, **changed})


def remembered(fields_: Mapping[str, Any]) -> Profile:
    """The profile that a kernel was started with, as its Secret keeps it; what another version of the gateway said beside is left out."""
    known = {each.name for each in fields(Profile)}
    return Profile(**{name: value for name, value in fields_.items() if name in known})


def quantity(text: str) -> int | Decimal:
    """A Kubernetes quantity as a number: "1Gi" is 1073741824, "500m" is 0.5. Raises ``ValueError``."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no quantity")
    value = Decimal(match[1]) * _UNITS[match[2]]
    return int(value) if value == value.to_integral_value() else value


def _profile(name: str, given: Any) -> Profile:
    where = f"KubernetesBackend.profiles[{name!r}]"
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", name):
        raise SettingError(f"{where}: a profile's name has small letters, digits and hyphens, at most 40.")
    if not isinstance(given, Mapping):
        raise SettingError(f"{where} must be a dictionary.")
    known = {each.name: each for each in fields(Profile) if each.name != "name"}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise SettingError(f"{where} has no field {unknown[0]!r}. There are: {', '.join(sorted(known))}.")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    profile = Profile(name=name, **values)
    for key, value in values.items():
        default = getattr(Profile(), key)
        if not isinstance(value, type(default) if not isinstance(default, dict) else Mapping) or isinstance(value, bool):
            raise SettingError(f"{where}.{key} is {value!r}: it must be {_kind(default)}.")
    if not profile.image:
        raise SettingError(f"{where}.image is missing: name an image that has Python and pyzmq.")
    for key in ("cpu", "cpu_limit", "memory", "parkable_memory"):
        text = getattr(profile, key)
        if text and not _QUANTITY.fullmatch(text):
            raise SettingError(f'{where}.{key} is {text!r}: it must be a quantity, such as "500m" or "4Gi".')
    if profile.gpu_sees not in SEES:
        raise SettingError(f"{where}.gpu_sees is {profile.gpu_sees!r}: it must be one of {', '.join(SEES)}.")
    if profile.gpu_sees == "claim" and not profile.gpu_claim:
        raise SettingError(f"{where}.gpu_claim is missing: name the ResourceClaimTemplate with admin access.")
    if profile.run_as_user == 0:
        raise SettingError(f"{where}.run_as_user is 0: kernels never run as root.")
    for volume in profile.volumes:
        if not {"name", "mount_path"} <= set(volume) or len(set(volume) - _VOLUME_KEYS) != 1:
            raise SettingError(
                f"{where}.volumes: each has a name, a mount_path and one source as Kubernetes has it; this has {sorted(volume)}."
            )
    called = [str(volume["name"]) for volume in profile.volumes]
    if len(set(called)) < len(called) or any(each.startswith("elastic-") for each in called):
        raise SettingError(f"{where}.volumes: each has a name of its own, which doesn't begin with elastic-; here they are {called}.")
    if any(re.match(r"/(opt|run)/elastic(/|$)", str(volume["mount_path"])) for volume in profile.volumes):
        raise SettingError(f"{where}.volumes: /opt/elastic and /run/elastic are the gateway's own; choose another mount_path.")
    if profile.gpu_resource and not _RESOURCE.fullmatch(profile.gpu_resource):
        raise SettingError(f"{where}.gpu_resource is {profile.gpu_resource!r}: it must be a resource such as nvidia.com/gpu.")
    if profile.warm and (profile.for_life or "{user}" in str(profile.volumes)):
        raise SettingError(
            f"{where}.warm is {profile.warm}: a kernel that waits for anybody has neither a volume of one user's own nor a GPU for life. "
            "Set it to 0."
        )
    for variable in profile.overrides:
        if variable not in _OVERRIDES:
            raise SettingError(f"{where}.overrides: {variable!r} can't be left to clients. There are: {', '.join(_OVERRIDES)}.")
    return profile


def _kind(default: Any) -> str:
    return {str: "text", int: "a whole number", tuple: "a list"}.get(type(default), "a dictionary")
