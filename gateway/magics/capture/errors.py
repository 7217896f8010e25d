"""Why a cell can't be sent. It is raised before anything starts."""

from __future__ import annotations

from ...protocol.errors import ElasticError


class CaptureError(ElasticError):
    """What the cell needs can't leave the kernel, or results can't be brought home; the message names the object and the next step."""

    reason = "not_captured"

    def _render_traceback_(self) -> list[str]:
        """For IPython: what matters is the sentence, not where in our code it was found."""
        return [f"{type(self).__name__}: {self}"]
