"""How a rank's exception is shown in the notebook: from the cell's own line on.

IPython would begin with the call that it makes of a cell with a magic, which has the whole cell in one line. This module must never
change what is raised, only what is shown; where it is in doubt it leaves that to IPython.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Optional

from ...protocol.transfer.failures import MODULE

CELLS = (["<module>", "run_cell_magic"], ["<module>", "run_line_magic"])  # the frames of a cell that is a magic, and does nothing else


def shown_alone(error: BaseException) -> BaseException:
    """``error``, as it is to be raised in a magic."""
    try:
        error._render_traceback_ = _render  # type: ignore[attr-defined]
    except Exception:
        pass  # its class lets nothing be set: IPython shows it in its own way
    return error


def misspelt(error: SyntaxError) -> BaseException:
    """What is raised for a cell that is no Python. IPython would show all of our frames that have led to a ``SyntaxError``."""

    def render(_: BaseException) -> list[str]:
        from IPython import get_ipython

        return get_ipython().SyntaxTB.structured_traceback(type(error), error, [])  # type: ignore[no-any-return]

    return type(type(error).__name__, (Exception,), {"_render_traceback_": render})(str(error))  # type: ignore[no-any-return]


def _render() -> list[str]:
    """For IPython, which asks while it handles the exception. A function without a memory, as it is pickled with the exception."""
    from IPython import get_ipython

    _, error, tb = sys.exc_info()
    if error is None:  # `%tb` shows the last one again
        error = sys.last_value
        tb = error.__traceback__
    own = _of_rank(tb)
    tb, offset = (tb, None) if own is None else (own, 0)
    return get_ipython().InteractiveTB.structured_traceback(type(error), error, tb, tb_offset=offset)  # type: ignore[no-any-return]


def _of_rank(tb: Optional[TracebackType]) -> Optional[TracebackType]:
    """Where the rank's own frames begin, if only one cell and its magic come before; else None."""
    names = []
    while tb is not None and tb.tb_frame.f_globals.get("__name__") != MODULE:
        names.append(tb.tb_frame.f_code.co_name)
        tb = tb.tb_next
    cell = names[1:3] if names[:1] == ["run_code"] else names[:2]  # IPython's own frame comes before a cell's
    return tb if cell in CELLS else None
