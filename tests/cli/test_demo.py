"""What the demo puts before a newcomer."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from ipykernel.ipkernel import IPythonKernel

from gateway.cli import demo_servers
from gateway.cli.demo_servers import NOTEBOOKS, describe, example, lab_env, step
from gateway.protocol.errors import LaunchError

KERNELSPEC = Path(__file__).parents[2] / "kernelspecs" / "elastic-python" / "kernel.json"


@pytest.mark.parametrize("source", NOTEBOOKS.values())
def test_a_notebook_is_as_jupyterlab_saves_it_so_that_opening_it_changes_nothing(source):
    text = example(source)
    notebook = nbformat.reads(text, 4)
    nbformat.validate(notebook)
    assert nbformat.writes(notebook) + "\n" == text
    assert notebook.metadata.language_info == {**IPythonKernel.language_info, "codemirror_mode": {"name": "ipython", "version": 3}}
    spec = json.loads(KERNELSPEC.read_text())
    wanted = {"display_name": spec["display_name"], "language": spec["language"], "name": KERNELSPEC.parent.name}
    assert notebook.metadata.kernelspec == wanted


@pytest.mark.parametrize("source", NOTEBOOKS.values())
def test_notebooks_link_only_to_what_lies_beside_them(source):
    links = [line.partition("](")[2].partition(")")[0] for line in example(source).splitlines() if ".ipynb)" in line]
    assert links
    assert set(links) <= set(NOTEBOOKS)


def test_jupyter_in_a_terminal_of_the_demo_is_the_one_that_it_runs_from(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin")
    found = shutil.which("jupyter", path=lab_env()["PATH"])
    assert found
    assert os.path.dirname(found) == os.path.dirname(sys.executable)


def test_each_step_of_the_start_says_how_it_went(capsys):
    with step("Starting one"):
        pass
    with pytest.raises(LaunchError), step("Starting another"):
        raise LaunchError("no")
    assert capsys.readouterr().out == "Starting one ... it answers after 0 s.\nStarting another ... failed.\n"


@pytest.mark.parametrize(("simulated", "said"), [(1, "1 simulated GPU."), (2, "2 simulated GPUs."), (None, "this machine's GPUs.")])
def test_the_gpus_are_counted_in_english(simulated, said):
    assert describe(simulated).endswith(said)


def test_a_notebook_that_is_there_already_is_left_as_it_is(tmp_path):
    mine = tmp_path / demo_servers.NOTEBOOK
    mine.write_text("mine")
    with demo_servers.scratch(str(tmp_path)) as (_, notebooks):
        assert mine.read_text() == "mine"
        assert {path.name for path in notebooks.iterdir()} == set(NOTEBOOKS)
