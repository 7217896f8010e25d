"""A capsule that holds the text of a cell and nothing else, for one that was sent by a program and not by a notebook.

Nothing is pickled in it, so that it can be made where no code of the user's may be loaded, and be read by any version of Python. It must
never be made of anything but text.
"""

from __future__ import annotations

import re
import uuid

from . import FORMAT, blobs
from .source import Source

DEVICE = re.compile(r"\bdevice\b")  # a cell that has the word may mean the rank's own


def pack(code: str, name: str, path: list[str]) -> list[blobs.Buffer]:
    """``name``: what tracebacks call the cell. ``path``: folders of the user's from which it may import."""
    text = code.replace("\r\n", "\n").replace("\r", "\n")
    header = {
        "id": uuid.uuid4().hex, "source": Source(text, text, name, 0).to_json(), "as_written": True, "facts": {"format": FORMAT},
        "files": {}, "path": path, "reads": ["device"] if DEVICE.search(text) else [], "accelerated": False, "installed": [], "buffers": [],
    }  # fmt: skip
    return blobs.join(header, [], [], [])
