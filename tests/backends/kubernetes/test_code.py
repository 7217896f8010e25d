"""Our code as pods get it: what is in the archive, that Python runs it from there, and which Secrets stay."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import zipfile
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from gateway.backends.kubernetes import code, names
from gateway.backends.kubernetes.errors import ApiConflict
from gateway.backends.kubernetes.manifests import CODE_KEY, Site

OWN = names.code("lab", code.version())
SITE = Site("lab", "kernels", "example/gateway:1", code=OWN)


class Server:
    """The part of an API server that keeps Secrets."""

    def __init__(self, *there: str) -> None:
        self.objects: dict[str, Any] = dict.fromkeys(there)
        self.created = 0

    async def names(self, kind: Any, namespace: str, selector: str) -> set[str]:
        assert namespace == "kernels" and selector == names.selector("lab", names.ROLE_CODE)
        return set(self.objects)

    async def create(self, kind: Any, namespace: str, body: Any) -> None:
        await asyncio.sleep(0)
        if body["metadata"]["name"] in self.objects:
            raise ApiConflict("it exists")
        self.created += 1
        self.objects[body["metadata"]["name"]] = body

    async def delete(self, kind: Any, namespace: str, name: str) -> None:
        del self.objects[name]


def pod(secret: str) -> dict[str, Any]:
    return {"spec": {"volumes": [{"name": "elastic-state", "emptyDir": {}}, {"name": "elastic-code", "secret": {"secretName": secret}}]}}


def test_the_archive_holds_what_runs_in_pods_and_nothing_else() -> None:
    there = zipfile.ZipFile(io.BytesIO(code.archive())).namelist()
    wanted = {"__init__.py", "elastic.py", "pod/supervisor.py", "protocol/model.py", "magics/gpu.py", "vendor/cloudpickle/__init__.py"}
    assert {f"gateway/{name}" for name in wanted} <= set(there)
    assert {Path(name).parts[1] for name in there} == {"__init__.py", "elastic.py", "pod", "protocol", "magics", "vendor"}


def test_the_archive_fits_into_a_secret_with_room_to_grow() -> None:
    assert len(code.archive()) < 0.8 * code.MOST


def printed(archive: bytes, asks: str, folder: Path) -> tuple[str, str]:
    """What a Python says to both ends that finds us in an archive alone."""
    (folder / CODE_KEY).write_bytes(archive)
    env = {"PYTHONPATH": str(folder / CODE_KEY)}
    done = subprocess.run([sys.executable, "-c", asks], env=env, cwd="/", capture_output=True, text=True, check=False)
    return done.stdout, done.stderr


def test_what_every_kernel_imports_comes_compiled_and_runs_from_the_archive(tmp_path: Path) -> None:
    asks = "import gateway.pod.supervisor as s, gateway.pod.proxy as p; print(s.__file__, p.__file__)"
    out, err = printed(code.archive(), asks, tmp_path)
    assert out.split() == [f"{tmp_path / CODE_KEY}/gateway/pod/{name}.pyc" for name in ("supervisor", "proxy")], err


def test_another_python_takes_the_source_and_errors_show_their_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "MAGIC_NUMBER", b"\0\0\r\n")
    asks = "import logging, gateway.pod.supervisor as s\nprint(s.__file__)\n"
    asks += "try: s.main(['supervisor'])\nexcept IndexError: logging.exception('')"
    out, err = printed(code.archive.__wrapped__(), asks, tmp_path)
    assert out.split() == [f"{tmp_path / CODE_KEY}/gateway/pod/supervisor.py"]
    assert "folder, report = Path(argv[1])" in err


def test_a_version_changes_with_the_code_and_with_the_python_that_compiled_it(monkeypatch: pytest.MonkeyPatch) -> None:
    version = code.version.__wrapped__
    before = version()
    assert version() == before
    monkeypatch.setattr(code, "MAGIC_NUMBER", b"\0\0\r\n")
    other = version()
    monkeypatch.setattr(code, "FILES", code.FILES[:1])
    assert len({before, other, version()}) == 3


def test_the_secret_is_made_once_however_many_start_and_again_if_it_is_gone() -> None:
    async def story() -> None:
        server = Server()
        mine = code.Code(server, SITE)  # type: ignore[arg-type]
        await asyncio.gather(*(mine.there() for _ in range(5)), code.Code(server, SITE).there())  # type: ignore[arg-type]
        assert server.created == 1
        [body] = server.objects.values()
        assert body["immutable"] and b64decode(body["data"][CODE_KEY]) == code.archive()
        server.objects.clear()
        await mine.there()
        assert server.created == 2

    asyncio.run(story())


def test_another_versions_code_stays_as_long_as_a_pod_mounts_it_and_all_goes_with_the_last_kernel() -> None:
    async def story() -> None:
        server = Server(OWN, "code-lab-older", "code-lab-oldest")
        mine = code.Code(server, SITE)  # type: ignore[arg-type]
        await mine.tidy([pod("code-lab-older"), {"spec": {}}])
        assert set(server.objects) == {OWN, "code-lab-older"}
        await mine.end()
        assert not server.objects

    asyncio.run(story())
