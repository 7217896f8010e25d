"""Kernelspecs that Enterprise Gateway was released with, installed by the ``jupyter`` command of its own environment, imported and run."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.enterprise.venv import enterprise_python, enterprise_source
from tests.integration.machine import Machine
from tests.integration.serving import GPU, Gateway, end

pytestmark = pytest.mark.timeout(600)  # an environment for it may have to be made first

OURS = {f"{name}_{where}" for name in ("r", "python", "python_tf", "python_tf_gpu") for where in ("docker", "kubernetes")}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them, as its administrator has them after ``jupyter kernelspec install``."""
    jupyter, prefix = enterprise_python().parent / "jupyter", tmp_path_factory.mktemp("enterprise")
    for folder in sorted((enterprise_source() / "etc/kernelspecs").glob("*/kernel.json")):
        subprocess.run([jupyter, "kernelspec", "install", f"--prefix={prefix}", folder.parent], check=True, capture_output=True)
    return prefix / "share/jupyter/kernels"


@pytest.fixture(scope="module")
def imported(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the import has put ours."""
    to = tmp_path_factory.mktemp("ours")
    (to / "said").write_text(told(installed, "--to", str(to / "kernels"), "--json"))
    return to


def told(*args: object) -> str:
    done = subprocess.run([sys.executable, "-m", "gateway.cli", "kernelspecs", "import", *map(str, args)], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr  # some can't be translated, and it says so
    return done.stdout


def test_each_becomes_ours_or_is_told_why_not(installed: Path, imported: Path):
    made = {each["name"]: each for each in json.loads((imported / "said").read_text())["kernelspecs"]}
    assert set(made) == {path.name for path in installed.iterdir()} and len(made) == 25
    assert (
        {name for name, each in made.items() if each["spec"] is not None}
        == OURS
        == {path.name for path in (imported / "kernels").iterdir()}
    )
    assert all(each["told"] for name, each in made.items() if name not in OURS)
    assert {made[name]["profile"] for name in OURS} == {"kernel-r", "kernel-py", "kernel-tf-py", "kernel-tf-gpu-py"}


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    machine = Machine(Path(tempfile.mkdtemp(prefix="eg", dir="/tmp")))
    yield (found := Gateway(machine))
    end(found)
    machine.clean()


@pytest.mark.parametrize("how", ["imported", "as it lies there"])
def test_one_of_them_leases_a_gpu_for_its_cells(how: str, installed: Path, imported: Path, gateway: Gateway):
    source = imported / "kernels" if how == "imported" else installed
    (gateway.machine.root / "d/kernels/python_kubernetes").symlink_to(source / "python_kubernetes")
    offered = gateway.call("GET", "/api/kernelspecs").json()["kernelspecs"]["python_kubernetes"]
    assert offered["spec"]["display_name"] == "Python on Kubernetes"
    with gateway.kernel("python_kubernetes", KERNEL_USERNAME="ada") as kernel:
        page = kernel.open()
        assert page.run(GPU + "import os; print('on', os.environ['CUDA_VISIBLE_DEVICES'])").out.startswith("on ")
        assert (kernel.lease["phase"], kernel.lease["user"]) == ("HOLDING", "ada")
