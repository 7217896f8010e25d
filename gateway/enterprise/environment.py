"""Enterprise Gateway's ``EG_*`` variables (and the older ``KG_*``) as settings of ours.

Those that name something that is otherwise here are told, with what to use instead; so is any that nobody knows. It must never read the
environment itself, nor put a value into a message: one may be a password.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from traitlets.config.loader import LazyConfigValue

from ..protocol.errors import SettingError


class Ours(NamedTuple):
    """``read`` makes the setting's value of the variable's text; raises ``ValueError`` with what it should have been. ``but``: what people
    have to know of it."""

    section: str
    name: str
    read: Callable[[str], Any]
    but: str = ""

    @property
    def setting(self) -> str:
        return f"{self.section}.{self.name}"


def _whole(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError("a whole number") from None


def _limit(value: str) -> int | None:
    """Theirs has -1 for no limit."""
    number = _whole(value)
    return None if number < 0 else number


def _seconds(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError("a number of seconds") from None


def _milliseconds(value: str) -> int:
    return int(_seconds(value) * 1000)


def _flag(value: str) -> bool:
    word = value.strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    if word in ("false", "0", "no", "off", ""):
        return False
    raise ValueError("True or False")


def names(value: str | list[str]) -> list[str]:
    """Theirs are separated by commas, some written as a Python list, and in a kernelspec maybe a list."""
    if isinstance(value, list):
        value = ",".join(value)
    return [name for part in value.strip("[](){} ").split(",") if (name := part.strip(" '\""))]


def _besides(value: str) -> LazyConfigValue:
    """Names on top of those that the setting has by default."""
    more = LazyConfigValue()
    more.extend(names(value))
    return more


def _allowed_kernels(value: str) -> set[str]:
    """Their image writes null where all are allowed, as does an empty set here."""
    return set(names(value)) - {"null"}


_KERNELS, _SERVER = "ElasticMappingKernelManager", "ServerApp"
_NOT_IN_PODS = "it counts for kernels that are processes of this machine; those in pods have their kernelspec's env and their profile's"
SETTINGS: dict[str, Ours] = {
    "EG_IP": Ours(_SERVER, "ip", str),
    "EG_PORT": Ours(_SERVER, "port", _whole),
    "EG_PORT_RETRIES": Ours(_SERVER, "port_retries", _whole),
    "EG_BASE_URL": Ours(_SERVER, "base_url", str),
    "EG_AUTH_TOKEN": Ours("IdentityProvider", "token", str),
    "EG_CERTFILE": Ours(_SERVER, "certfile", str),
    "EG_KEYFILE": Ours(_SERVER, "keyfile", str),
    "EG_CLIENT_CA": Ours(_SERVER, "client_ca", str),
    "EG_ALLOW_ORIGIN": Ours(_SERVER, "allow_origin", str),
    "EG_ALLOW_CREDENTIALS": Ours(_SERVER, "allow_credentials", _flag),
    "EG_TRUST_XHEADERS": Ours(_SERVER, "trust_xheaders", _flag),
    "EG_WS_PING_INTERVAL_SECS": Ours(_SERVER, "websocket_ping_interval", _milliseconds),
    "EG_LOG_LEVEL": Ours("Application", "log_level", str),
    "EG_MAX_KERNELS": Ours(_KERNELS, "max_kernels", _limit),
    "EG_MAX_KERNELS_PER_USER": Ours(_KERNELS, "max_kernels_per_user", _limit),
    "EG_AUTHORIZED_USERS": Ours(_KERNELS, "allowed_users", names),
    "EG_UNAUTHORIZED_USERS": Ours(_KERNELS, "denied_users", names),
    "EG_CLIENT_ENVS": Ours(_KERNELS, "allowed_envs", names),
    "EG_ENV_WHITELIST": Ours(_KERNELS, "allowed_envs", names),
    "EG_INHERITED_ENVS": Ours("LocalBackend", "inherited_env", _besides, _NOT_IN_PODS),
    "EG_ENV_PROCESS_WHITELIST": Ours("LocalBackend", "inherited_env", _besides, _NOT_IN_PODS),
    "EG_DEFAULT_KERNEL_NAME": Ours(_KERNELS, "default_kernel_name", str),
    "EG_CULL_IDLE_TIMEOUT": Ours(_KERNELS, "cull_idle_timeout", _whole),
    "EG_CULL_INTERVAL": Ours(_KERNELS, "cull_interval", _whole),
    "EG_CULL_CONNECTED": Ours(_KERNELS, "cull_connected", _flag),
    "EG_ALLOWED_KERNELS": Ours("KernelSpecManager", "allowed_kernelspecs", _allowed_kernels),
    "EG_KERNEL_WHITELIST": Ours("KernelSpecManager", "allowed_kernelspecs", _allowed_kernels),
    "EG_KERNEL_LAUNCH_TIMEOUT": Ours("Launching", "launch_timeout", _seconds),
}

_PROFILE = "the profile's fields say that (KubernetesBackend.profiles)"
_OWN_LINE = "nothing: kernels are dialled by the gateway, so none answers on a port of its own"
_OUTLIVE = "nothing: kernels outlive every gateway, and the next one finds them"
_TOLD = "nothing: a kernel's state is heard as it changes"
_UNLOGGED = "nothing: no kernel's environment is logged"
_NO_SSH = "a backend of this gateway, local or kubernetes: kernels by ssh are none of them"
_NO_YARN = "a backend of this gateway, local or kubernetes: kernels on YARN are none of them"
INSTEAD: dict[str, str] = {
    "EG_LIST_KERNELS": "users list their own kernels, always",
    "EG_AUTHORIZER_CLASS": "ServerApp.authorizer_class",
    "EG_KERNEL_HEADERS": "nothing: headers of a request go to no kernel",
    "EG_AUTHORIZED_ORIGIN": "ServerApp.client_ca, and ServerApp.allow_origin for browsers",
    "EG_ALLOW_HEADERS": "nothing: what JupyterLab needs is allowed",
    "EG_ALLOW_METHODS": "nothing: what JupyterLab needs is allowed",
    "EG_EXPOSE_HEADERS": "nothing: what JupyterLab needs is allowed",
    "EG_MAX_AGE": "nothing: browsers ask each time",
    "EG_SSL_VERSION": "ServerApp.ssl_options",
    "EG_IMPERSONATION_ENABLED": "a profile's run_as_user",
    "EG_KERNELSPEC_CACHE_ENABLED": "nothing: kernelspecs are read when they have changed",
    "EG_DYNAMIC_CONFIG_INTERVAL": "Leases.policy_file, which is read again when it changes",
    "EG_AVAILABILITY_MODE": _OUTLIVE,
    "EG_KERNEL_SESSION_PERSISTENCE": _OUTLIVE,
    "EG_KERNEL_SESSION_LOCATION": _OUTLIVE,
    "EG_PERSISTENCE_ROOT": _OUTLIVE,
    "EG_AUTH_TYPE": _OUTLIVE,
    "EG_SHARED_NAMESPACE": "nothing: kernels share KubernetesBackend.namespace",
    "EG_NAMESPACE": "KubernetesBackend.namespace, for the kernels",
    "EG_KERNEL_CLUSTER_ROLE": "nothing: kernels have no rights in the cluster",
    "EG_DEFAULT_KERNEL_SERVICE_ACCOUNT_NAME": "nothing: kernels have no rights in the cluster",
    "EG_KERNEL_IMAGE": _PROFILE,
    "EG_KERNEL_EXECUTOR_IMAGE": "nothing: it is for Spark, which is no backend of this gateway",
    "EG_KERNEL_INFO_TIMEOUT": "launch_timeout of LocalBackend or KubernetesBackend, which lasts until the kernel answers",
    "EG_KERNEL_LOG_DIR": "LocalBackend.runtime_dir, where each kernel's folder has its kernel.log",
    "EG_ALTERNATE_SIGINT": "a kernelspec's interrupt_mode",
    "EG_POLL_INTERVAL": _TOLD,
    "EG_MAX_POLL_ATTEMPTS": _TOLD,
    "EG_RESTART_STATUS_POLL_INTERVAL": _TOLD,
    "EG_SOCKET_TIMEOUT": _TOLD,
    "EG_SENSITIVE_ENV_KEYS": _UNLOGGED,
    "EG_REDACTION_MASK": _UNLOGGED,
    "EG_KUBERNETES_LOG_LEVEL": "Application.log_level",
    "EG_ENABLE_TUNNELING": _NO_SSH,
    "EG_LOAD_BALANCING_ALGORITHM": _NO_SSH,
    "EG_PROHIBITED_UIDS": "nothing: no pod runs as user 0",
    "EG_PROHIBITED_GIDS": "nothing: no pod runs as user 0",
    "EG_MIRROR_WORKING_DIRS": "a profile's volumes and working_dir",
    "EG_POD_TEMPLATE_DIR": _PROFILE,
    "EG_CULL_BUSY": "nothing: a kernel that runs a cell is never culled",
    "EG_ZMQ_MAX_SOCKETS": "nothing: a kernel takes one socket",
    "EG_ZMQ_IO_THREADS": "nothing: a kernel takes one socket",
    "EG_PORT_RANGE": _OWN_LINE,
    "EG_MIN_PORT_RANGE_SIZE": _OWN_LINE,
    "EG_MAX_PORT_RANGE_RETRIES": _OWN_LINE,
}  # fmt: skip
PREFIXES: dict[str, str] = {
    "EG_RESPONSE_": _OWN_LINE,
    "EG_PROHIBITED_LOCAL_IPS": _OWN_LINE,
    "EG_WEBHOOK_": _OUTLIVE,
    "EG_YARN_": _NO_YARN,
    "EG_ALT_YARN_": _NO_YARN,
    "EG_CONDUCTOR_": "a backend of this gateway, local or kubernetes: kernels on Conductor are none of them",
    "EG_REMOTE_": _NO_SSH,
    "EG_SSH_": _NO_SSH,
    "EG_REMOVE_CONTAINER": "nothing: kernels in Docker are no backend of this gateway",
    "EG_DOCKER_": "a backend of this gateway, local or kubernetes: kernels in Docker are none of them",
}


def translate(environment: Mapping[str, str]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """``(settings by class and name, what people have to be told)``. Raises ``SettingError`` where a value makes no sense."""
    theirs = {f"EG_{name[3:]}": name for name in environment if name.startswith("KG_")}  # the older names count less
    theirs |= {name: name for name in environment if name.startswith("EG_")}
    settings: dict[str, dict[str, Any]] = {}
    told = []
    for name, written in sorted(theirs.items(), key=lambda each: ("WHITELIST" not in each[0], each)):  # the older first, as the last counts
        ours = SETTINGS.get(name)
        if ours is None:
            told.append(f"{written} does nothing here{_instead(name)}.")
            continue
        try:
            settings.setdefault(ours.section, {})[ours.name] = ours.read(environment[written])
        except ValueError as exc:
            raise SettingError(f"The environment variable {written} must be {exc}, as it is taken for {ours.setting}.") from None
        if ours.but:
            told.append(f"{written} is taken for {ours.setting}: {ours.but}.")
    return settings, told


def _instead(name: str) -> str:
    found = INSTEAD.get(name) or next((why for prefix, why in PREFIXES.items() if name.startswith(prefix)), "")
    return f"; instead: {found}" if found else ", and it is none that Enterprise Gateway 3.3 is known to have"
