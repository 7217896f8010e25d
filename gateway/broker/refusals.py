"""Refusals that come over a wire, as the errors that the other side has raised. Whoever reads one must never lose its reason."""

from __future__ import annotations

from typing import Any

from ..protocol import errors
from ..protocol.errors import ElasticError

_BY_REASON = {kind.reason: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ElasticError)}


def answered_error(answer: dict[str, Any]) -> ElasticError:
    """The error that an answer ``{"message", "reason"}`` tells of, as the class that has this reason."""
    reason = str(answer.get("reason") or ElasticError.reason)
    return _BY_REASON.get(reason, ElasticError)(str(answer.get("message") or "refused without a reason"), reason=reason)
