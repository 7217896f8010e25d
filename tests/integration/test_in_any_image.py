"""The code that a kernel's pod mounts, in an image with nothing but Python, pyzmq and a kernel: as another user, read-only."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.backends.kubernetes.code import archive
from gateway.backends.kubernetes.manifests import CODE_KEY
from gateway.broker.link import KernelLink
from tests.integration.pods import Browser, Pod

NOBODY = 65534
# A container's world: its own processes, nothing to be written but one volume, another user without any right.
CONTAINER = """mount --bind "$0" "$0" && mount -o remount,bind,ro / && exec setpriv --reuid={uid} --regid={uid} --clear-groups "$@" """


def may_run(python: str) -> bool:
    """Whether any user can reach this interpreter."""
    if os.geteuid():
        return False
    try:
        tried = subprocess.run([python, "-c", "import venv"], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=False)
    except PermissionError:
        return False
    return tried.returncode == 0


def python39() -> str | None:
    """A Python 3.9 of this machine."""
    candidates = [shutil.which("python3.9"), *map(str, Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"))]
    for each in filter(None, candidates):
        if subprocess.run([each, "-c", ""], capture_output=True, check=False).returncode == 0:
            return each
    return None


def pythons() -> list[str]:
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return [each for each in (str(base), "/usr/bin/python3", sys.executable) if Path(each).exists()]


@pytest.fixture(scope="session", params=["any", pytest.param("3.9", marks=pytest.mark.slow)])
def image(request: pytest.FixtureRequest) -> Iterator[str]:
    """The Python of an environment that has pyzmq and ipykernel alone."""
    if request.param == "3.9":
        base = python39()
        if base is None:
            pytest.skip("no Python 3.9 is installed here: `pyenv install 3.9`")
    else:
        base = next(filter(may_run, pythons()), sys.executable)
    folder = tempfile.mkdtemp(prefix="image-", dir="/tmp")
    os.chmod(folder, 0o755)
    python = f"{folder}/bin/python"
    subprocess.run([base, "-m", "venv", "--without-pip", folder], check=True)
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--disable-pip-version-check", "pyzmq", "ipykernel"]
    subprocess.run(install, check=True)
    yield python
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def code() -> Iterator[Path]:
    """What the pod's Secret holds, mounted as the kubelet does: by a link to a link."""
    folder = Path(tempfile.mkdtemp(prefix="code-", dir="/tmp"))
    (folder / "..1").mkdir()
    (folder / "..1" / CODE_KEY).write_bytes(archive())
    (folder / "..data").symlink_to("..1")
    (folder / CODE_KEY).symlink_to(f"..data/{CODE_KEY}")
    for each in (folder, folder / "..1"):
        each.chmod(0o755)
    yield folder / CODE_KEY
    shutil.rmtree(folder)


@pytest.mark.timeout(400)
def test_the_packed_code_runs_a_kernel_in_an_image_with_pyzmq_and_ipykernel_alone(image: str, code: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="volume-", dir="/tmp"))
    env = {"PATH": f"{Path(image).parent}:/usr/bin:/bin", "PYTHONPATH": str(code), "HOME": str(folder), "TMPDIR": str(folder)}
    argv = [image, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--ext=gateway.magics"]
    contained = not os.geteuid() and all(map(shutil.which, ("unshare", "setpriv")))
    uid = NOBODY if contained and may_run(image) else os.geteuid()
    script = CONTAINER.format(uid=uid)
    unshare = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script, str(folder)]
    pod = Pod(
        prefix=unshare if contained else None, python=image, environ=env, folder=folder, cwd_of_supervisor="/", argv=argv, env=env,
        group=uid if contained else None,
    )  # fmt: skip
    assert pod.said == "ready\n", pod.last_words()

    async def story() -> None:
        link = KernelLink(pod)
        await link.open(["owner", "broker", "sessions"], 1, 60)
        browser = Browser(link, "one")
        cell = asyncio.create_task(browser.run("%%gpu\nimport gateway, os\nprint(gateway.__loader__.archive, os.getuid(), os.getppid())"))
        await link.until(lambda state: state.lease.wanted)
        link.order("grant", (1, 1), gpus=["slot/0"], devices=["GPU-SIM-0"])
        parent = 1 if contained else pod.process.pid
        assert await cell == f"{code} {uid} {parent}\n"
        assert "slot/0" in await browser.run("%gpu status")
        link.close()

    asyncio.run(asyncio.wait_for(story(), 120))
    assert pod.stop() == 0
    assert not (folder / "run").exists()


CELL = """
from gateway.magics import capture
from gateway.pod import rank
names = {"__name__": "__main__"}
exec("class P: pass\\nitems = [1]\\ndef add(v):\\n    items.append(v)\\n    return P()", names)
capsule = capture.pack("made = add(RANK)", names, capture.Options(number=1))
cell = rank.load([bytes(blob) for blob in capsule.blobs])
assert cell.run({"RANK": 7}) is None
print(capture.take(cell.give_back(), names), names["items"], type(names["made"]) is names["P"])
failing = capture.pack("add(1)\\n1/0", names)
failed = rank.load([bytes(blob) for blob in failing.blobs]).run({})
error = capture.failure(failed.blobs, names)
print(type(error).__name__, error.__traceback__.tb_lineno)
"""


def test_a_cell_is_sent_and_comes_home_in_an_image_without_cloudpickle(image: str, code: Path) -> None:
    environ = {"PYTHONPATH": str(code), "PATH": "/usr/bin:/bin"}
    assert subprocess.run([image, "-c", "import cloudpickle"], env=environ, cwd="/", capture_output=True).returncode
    done = subprocess.run([image, "-c", CELL], env=environ, cwd="/", capture_output=True, text=True)
    assert done.stdout.splitlines() == ["assigned: made", "changed: items [1, 7] True", "ZeroDivisionError 2"], done.stderr
