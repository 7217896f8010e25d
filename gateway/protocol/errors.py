"""The one tree of errors. Each message gives the cause and the next step, each ``reason`` is a short stable code.

This module must never import anything but the standard library: supervisors raise these in users' images.
"""

from __future__ import annotations

import errno
import os


class ElasticError(Exception):
    """The root of every error that the gateway raises on purpose.

    ``reason`` is the short code that programs match on, ``str(error)`` the sentence for people.
    """

    reason = "elastic_error"

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason

    def to_json(self) -> dict[str, str]:
        """The REST form, ``{"message": cause and next step, "reason": short code}``."""
        return {"message": str(self), "reason": self.reason}


class WireError(ElasticError):
    """A message on the link or the websocket can't be read; it was dropped and nothing else was touched."""

    reason = "malformed_message"


class RequestError(WireError):
    """A request that can't be read, but for who asks: its sender can be answered. ``header`` has what an answer needs of it."""

    reason = "unreadable_request"

    def __init__(self, message: str, channel: str, header: dict[str, str]) -> None:
        super().__init__(message)
        self.channel, self.header = channel, header


class SignatureError(WireError):
    """A message's HMAC doesn't match the kernel's key."""

    reason = "bad_signature"


class VersionError(ElasticError):
    """The two ends of a link have no protocol version in common; the newer side has to be rolled back or the older updated."""

    reason = "no_common_version"


class StaleOrderError(ElasticError):
    """An order carries an older epoch than one already obeyed: another gateway has taken over."""

    reason = "stale_order"


class LaunchError(ElasticError):
    """A kernel could not be started; the message holds the kernel's own last words where there are any."""

    reason = "launch_failed"


class LaunchTimeout(LaunchError):
    """A kernel did not come up in time; the message names the setting that limited it and the seconds it had."""

    reason = "launch_timeout"


class KernelDied(ElasticError):
    """The kernel process ended without being asked to; the message holds its exit code or signal."""

    reason = "kernel_died"


class SupervisorLost(ElasticError):
    """The supervisor beside a kernel is gone, and the kernel with it."""

    reason = "supervisor_lost"


class LeaseError(ElasticError):
    """A lease can't be had or changed."""

    reason = "lease_refused"


class ExecutingError(LeaseError):
    """The kernel is executing a cell, so its GPU can't be taken now (HTTP 409)."""

    reason = "executing"


class ImpossibleRequest(LeaseError):
    """More GPUs are asked for than could ever be granted here."""

    reason = "impossible_request"


class QueueTimeout(LeaseError):
    """The wait for a GPU lasted longer than the site allows."""

    reason = "queue_timeout"


class DeviceError(ElasticError):
    """Parking or resuming CUDA state failed; ``fatal`` says whether the state is lost, ``occupied`` whether some of it may lie on
    the GPU until the process ends."""

    reason = "device_failed"

    def __init__(self, message: str, *, fatal: bool = False, occupied: bool = False, reason: str | None = None) -> None:
        super().__init__(message, reason=reason)
        self.fatal, self.occupied = fatal, occupied


class BrokerUnavailable(ElasticError):
    """No broker answers on this machine and none could be started."""

    reason = "broker_unavailable"


class SettingError(ElasticError):
    """A setting is unknown or has a value that can't hold; the message names it and what would."""

    reason = "bad_setting"


class BadRequest(ElasticError):
    """A client's request can't be carried out as sent (HTTP 400); the message names the field."""

    reason = "bad_request"


def cause(error: OSError, place: os.PathLike[str]) -> str:
    """What the system's error says for people: its words, the path (``place`` where it has none), and what helps if a disk is full."""
    words, where = error.strerror or str(error), error.filename or os.fspath(place)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{words}: {where}. Remove something there and try again, or set LocalBackend.runtime_dir to a folder on a disk with room"
    return f"{words}: {where}"
