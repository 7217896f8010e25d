"""Magics whose rooms are imported only once they are needed, and that are none the worse for it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

from gateway.magics import distributed, gpu

SHELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
shell.run_line_magic("load_ext", "gateway.magics")
print(sorted(name for name in sys.modules if name.startswith("gateway.")))
shell.run_cell("%gpu bogus")
print("gateway.magics.gpu" in sys.modules)
"""


def test_a_kernel_starts_without_what_few_cells_need() -> None:
    said = subprocess.run([sys.executable, "-c", SHELL], check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    assert said[0] == "['gateway.magics', 'gateway.magics.gate_line', 'gateway.magics.later', 'gateway.magics.output']"
    assert said[-1] == "True"


@pytest.mark.parametrize(
    ("magic", "real"),
    [("%gpu", gpu.gpu), ("%%distributed", distributed.Distributed.distributed), ("%burst", distributed.Distributed.burst)],
)
def test_a_question_mark_shows_the_whole_text_before_the_first_use(shell: InteractiveShell, magic: str, real: object) -> None:
    text = shell.object_inspect_mime(magic)["text/plain"]
    last = real.__doc__.strip().splitlines()[-1].strip()
    assert last in text


def test_what_is_wrong_with_a_line_is_one_sentence_at_the_first_use_too(shell: InteractiveShell) -> None:
    result = shell.run_cell("%%distributed --no-such\nx = 1")
    assert "--no-such" in str(result.error_in_exec)
    assert type(result.error_in_exec).__name__ == "UsageError"


def test_its_first_line_is_in_the_list_of_all_magics(shell: InteractiveShell) -> None:
    docs = shell.magics_manager.lsmagic_docs(brief=True)
    assert docs["line"]["gpu"] == gpu.gpu.__doc__.splitlines()[0].replace("``%gpu`` says", "Say")
    assert docs["cell"]["distributed"] == distributed.Distributed.distributed.__doc__.strip().splitlines()[0]
    assert docs["line"]["burst"] == distributed.Distributed.burst.__doc__.strip().splitlines()[0]
