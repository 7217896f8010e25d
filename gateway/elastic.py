"""What a cell of ``%%distributed`` imports so that it may change its number of workers: ``from gateway import elastic``.

``elastic.State`` holds what has to live on. A cell that has one runs unchanged without a burst, too: alone, and from its beginning.
It must never need more than the standard library.
"""

from .pod.elastic.state import State

__all__ = ["State"]
