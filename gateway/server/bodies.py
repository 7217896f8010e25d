"""What clients may ask for in the body of a request: read, checked, bounded.

Pure. It must never pass on a value that it has not checked, nor put a path of the server or an internal into a message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from ..protocol.errors import BadRequest

MAX_BODY_BYTES = 2 << 20
MAX_VALUE_BYTES = 128 << 10  # Linux refuses a longer NAME=value
MAX_NAME = 128
MAX_PATH = 4096

_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_ID = re.compile(r"\w+-\w+-\w+-\w+-\w+", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class StartBody:
    """A checked ``POST /api/kernels``. ``None``: the client leaves it to the gateway."""

    name: str | None = None
    path: str | None = None
    kernel_id: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()  # variables that this gateway's settings don't let in


@dataclass(frozen=True)
class SessionBody:
    """A checked ``POST`` or ``PATCH /api/sessions``."""

    path: str | None = None
    name: str | None = None
    type: str | None = None
    kernel: StartBody | None = None


def json_object(raw: bytes, empty: bool = False) -> dict[str, Any]:
    """The body as a JSON object. ``empty``: no body at all is an empty object. Raises ``BadRequest``."""
    if len(raw) > MAX_BODY_BYTES:
        raise BadRequest(f"The body is too large: {len(raw)} bytes, at most {MAX_BODY_BYTES} are read.", reason="too_large")
    if not raw.strip():
        if empty:
            return {}
        raise BadRequest("The body is empty; send a JSON object.")
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise BadRequest("The body isn't valid JSON; send a JSON object.") from None
    if not isinstance(body, dict):
        raise BadRequest("The body must be a JSON object.")
    return body


def start_body(body: dict[str, Any], allowed: Collection[str]) -> StartBody:
    """Check a request for a kernel. ``allowed``: variables that may be set besides ``KERNEL_*``. Raises ``BadRequest``."""
    env, ignored = environment(body.get("env"), allowed)
    kernel_id = kernel_id_of(body.get("kernel_id") or env.get("KERNEL_ID") or None)
    if kernel_id is not None:
        env["KERNEL_ID"] = kernel_id
    return StartBody(name=kernel_name(body.get("name")), path=api_path(body.get("path")), kernel_id=kernel_id, env=env, ignored=ignored)


def session_body(body: dict[str, Any], allowed: Collection[str]) -> SessionBody:
    """Check a request that makes or changes a session. Raises ``BadRequest``."""
    notebook = body.get("notebook")
    if isinstance(notebook, dict):  # what clients sent before sessions had a path of their own
        body = {"type": "notebook", "path": notebook.get("path", notebook.get("name")), **body}
    kernel = body.get("kernel")
    if kernel is None:
        checked = None
    elif isinstance(kernel, dict):
        env = kernel.get("env", body.get("env"))
        checked = start_body({"name": kernel.get("name"), "kernel_id": kernel.get("id"), "env": env}, allowed)
    else:
        raise BadRequest("kernel must be an object with the name or the id of a kernel.")
    return SessionBody(path=api_path(body.get("path")), name=_text(body, "name"), type=_text(body, "type"), kernel=checked)


def kernel_name(value: Any) -> str | None:
    """A kernelspec's name as far as its letters go; whether it exists is not looked up."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadRequest("name must be text: the name of a kernel in GET /api/kernelspecs.")
    if not value or len(value) > MAX_NAME or not _NAME.fullmatch(value) or not value.strip("."):
        raise BadRequest("name may have letters, digits, dots, hyphens and underscores, and at most 128 of them.")
    return value


def kernel_id_of(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > MAX_NAME or not _ID.fullmatch(value):
        raise BadRequest("kernel_id must be a UUID, or be left out: then the gateway makes one.")
    return value


def api_path(value: Any) -> str | None:
    """A path below the kernels' root folder, with slashes. It need not exist, and can't leave the folder."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadRequest("path must be text.")
    if len(value) > MAX_PATH or "\0" in value or not _encodable(value):
        raise BadRequest(f"path may have at most {MAX_PATH} characters, all of them printable.")
    if ".." in value.replace("\\", "/").split("/"):
        raise BadRequest("path can't go above the kernels' root folder ('..').")
    return value


def environment(value: Any, allowed: Collection[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """``(variables that are let in, names of those that aren't)``. Raises ``BadRequest`` naming the variable."""
    if value is None:
        return {}, ()
    if not isinstance(value, dict):
        raise BadRequest("env must be an object of names and texts.")
    env, ignored = {}, []
    for name, text in value.items():
        if not (name.startswith("KERNEL_") or name in allowed):
            ignored.append(name[:MAX_NAME])
            continue
        shown = name[:MAX_NAME]
        if not _VARIABLE.fullmatch(name) or len(name) > MAX_NAME:
            raise BadRequest(f"env: {shown!r} can't be the name of a variable.")
        if not isinstance(text, str):
            raise BadRequest(f"env: {shown} must be text, not {_kind(text)}.")
        if "\0" in text or not _encodable(text):
            raise BadRequest(f"env: {shown} holds a character that no environment variable can hold.")
        if len(text.encode()) + len(name) + 2 > MAX_VALUE_BYTES:
            raise BadRequest(f"env: {shown} is too long; at most {MAX_VALUE_BYTES} bytes fit into a variable.")
        env[name] = text
    _whole(env, "KERNEL_GPUS", "how many GPUs a lease of this kernel has")
    _number(env, "KERNEL_LAUNCH_TIMEOUT", "seconds that the kernel may take to start")
    return env, tuple(ignored)


def _whole(env: dict[str, str], name: str, what: str) -> None:
    if name in env and not (env[name].isascii() and env[name].isdigit() and len(env[name]) < 5):
        raise BadRequest(f"env: {name} must be a whole number: {what}.")


def _number(env: dict[str, str], name: str, what: str) -> None:
    if name not in env:
        return
    try:
        fits = 0 < float(env[name]) < 1e9
    except ValueError:
        fits = False
    if not fits:
        raise BadRequest(f"env: {name} must be a number above 0: {what}.")


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > MAX_PATH or not _encodable(value)):
        raise BadRequest(f"{name} must be text of at most {MAX_PATH} characters.")
    return value


def _kind(value: Any) -> str:
    return {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}.get(type(value), "null")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
