"""By what the members of a burst in pods know one another, where their engine can tell friends from strangers: made once for each burst.

It must never write a key down: who asks for it keeps it where only this burst reads it.
"""

from __future__ import annotations

import secrets

from .. import certificate

CERTIFICATE, KEY = "engine.crt", "engine.key"  # files in each pod's folder
RAY_TOKEN = "ray.token"


def make(engine: str, name: str) -> dict[str, str]:
    """Files for the folder of each pod, {} where the engine has no keys. ``name``: of the burst."""
    if engine in ("dask", "mpi"):
        return dict(zip((CERTIFICATE, KEY), certificate.make(name), strict=True))
    return {RAY_TOKEN: secrets.token_hex(32)} if engine == "ray" else {}
