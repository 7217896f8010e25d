"""Our own code as kernels' pods get it: one zip file that Python imports from, in an immutable Secret named after what is in it.

Any image with Python >= 3.9 and pyzmq can run a supervisor from it, and no container has to copy anything first. It is a Secret because a
gateway may write those anyway, and whoever may write them here can read all kernels' keys already. cloudpickle comes along, in a folder
that is looked into only where an image has none. This must never hold what such an image can't run, nor go while a pod may mount it.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import io
import logging
import marshal
import zipfile
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from typing import Any

import gateway

from . import manifests, names
from .api import SECRETS, KubeApi
from .errors import ApiConflict

log = logging.getLogger(__name__)

PACKAGE = Path(gateway.__file__).parent
ROOMS = ("pod", "protocol", "magics")
FILES = ("__init__.py", "elastic.py")
BESIDE = ("cloudpickle",)  # packages of Python alone that those rooms need
MOST = 1 << 20  # bytes that the API server takes in one Secret
AT_ONCE = ("pod", "pod/cells", "protocol", "magics")  # folders of what each kernel imports, so worth compiling beforehand


def files() -> Iterator[tuple[Path, Path]]:
    """``(file, its place in our package)``."""
    for name in FILES:
        yield PACKAGE / name, Path(name)
    for room in ROOMS:
        for file in sorted((PACKAGE / room).rglob("*.py")):
            yield file, file.relative_to(PACKAGE)
    for package in BESIDE:
        found = importlib.util.find_spec(package)
        for folder in (found and found.submodule_search_locations) or ():
            for file in sorted(Path(folder).glob("*.py")):
                yield file, Path("vendor", package, file.name)


@cache
def version() -> str:
    """The same for the same code, compiled by the same Python."""
    found = hashlib.sha256(MAGIC_NUMBER)
    for file, name in files():
        found.update(f"{name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:16]


@cache
def archive() -> bytes:
    """A zip file for ``PYTHONPATH``. What each kernel imports is compiled too, which counts where a pod's Python is of this one's version;
    any other takes the source."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as into:
        for file, place in files():
            source, name = file.read_bytes(), f"{PACKAGE.name}/{place.as_posix()}"
            into.writestr(zipfile.ZipInfo(name), source, zipfile.ZIP_DEFLATED, 9)
            if place.parent.as_posix() in AT_ONCE:
                into.writestr(zipfile.ZipInfo(f"{name}c"), _compiled(source, name), zipfile.ZIP_DEFLATED, 9)
    return made.getvalue()


def _compiled(source: bytes, name: str) -> bytes:
    """As PEP 552 has it, with a hash that nobody checks: it comes with its source."""
    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    return MAGIC_NUMBER + (1).to_bytes(4, "little") + source_hash(source) + marshal.dumps(code)


class Code:
    """The Secrets that hold one gateway's code: its own, and those of versions before that pods still mount."""

    def __init__(self, api: KubeApi, site: manifests.Site) -> None:
        self._api, self._site, self._making = api, site, asyncio.Lock()

    async def there(self) -> None:
        """Before each pod that mounts it, as somebody may have deleted it. Raises ``ApiError``."""
        if self._site.code in await self._names():
            return
        async with self._making:  # it is packed once, however many start
            if self._site.code not in await self._names():
                zipped = b64encode(await asyncio.to_thread(archive)).decode()
                try:
                    await self._api.create(SECRETS, self._site.namespace, manifests.code_secret(self._site, zipped))
                except ApiConflict:
                    pass  # another was quicker

    async def tidy(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """Those of other versions go once none of our pods mounts them."""
        mounted = {volume["secret"]["secretName"] for pod in pods for volume in pod["spec"].get("volumes") or () if "secret" in volume}
        await self._forget(await self._names() - mounted - {self._site.code})

    async def end(self) -> None:
        """All of them, as all kernels end."""
        await self._forget(await self._names())

    async def _names(self) -> set[str]:
        return await self._api.names(SECRETS, self._site.namespace, names.selector(self._site.gateway, names.ROLE_CODE))

    async def _forget(self, which: set[str]) -> None:
        for name in sorted(which):
            log.info("no pod needs the code in the Secret %s any more: deleting it", name)
            await self._api.delete(SECRETS, self._site.namespace, name)
