"""What ends all workers of an agent although their cell isn't through: somebody's word, or the clock. Pure."""

from __future__ import annotations

from typing import Optional

from ...protocol import burst


def told_to_end(cancelled: str, timeout: Optional[float], seconds: float) -> Optional[tuple[str, str]]:
    """Outcome and message; None where they go on. ``cancelled``: why somebody wants their end, "" where nobody does. ``timeout``: how many
    seconds they may run, of which ``seconds`` are over."""
    if cancelled:
        return burst.CANCELLED, cancelled
    if timeout is not None and seconds > timeout:
        return burst.ERROR, f"It ran for {timeout:g} seconds, as long as --timeout lets it."
    return None
