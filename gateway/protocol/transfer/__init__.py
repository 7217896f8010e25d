"""How a cell's names cross from a kernel to a rank and back, as lists of buffers: what both ends must do alike.

It must never know how the buffers travel. It needs cloudpickle, which comes with this package into images that lack it.
"""

from __future__ import annotations

FORMAT = 1  # of the header and of everything that pickles here refer to by name
