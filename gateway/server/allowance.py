"""Who may start which kernels: by the site's lists of users, and by a kernelspec's own. Pure.

A kernelspec has them in its metadata (``allowed_users``, ``denied_users``). It must never let anybody in because a list can't be read.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def may_start(user: str, metadata: Any, allowed: Collection[str], denied: Collection[str]) -> bool:
    """Whether ``user`` ("": nobody by name) may start kernels of a kernelspec with this metadata. As in Enterprise Gateway, who is denied
    by either is; a kernelspec's own list of those allowed counts in place of the site's."""
    own = metadata if isinstance(metadata, dict) else {}
    own_allowed, own_denied = own.get("allowed_users") or [], own.get("denied_users") or []
    if not isinstance(own_allowed, list) or not isinstance(own_denied, list):
        return False
    listed = own_allowed or allowed
    return user not in denied and user not in own_denied and (not listed or user in listed)
