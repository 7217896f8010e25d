"""Why a cell can't be sent. It is raised before anything starts."""

from __future__ import annotations

from ...protocol.errors import ElasticError


class CaptureError(ElasticError):
    """What the cell needs can't leave the kernel, or results can't be brought home; the message names the object and the next step."""

    reason = "not_captured"
