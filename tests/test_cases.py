"""Known complaints about notebook servers and GPU sharing: the part of the list that one machine can show, and that each is a test.

Which tests show a case: ``pytest -m case``, or look for ``case("K05")``.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parent

CASES = {
    "S01": "odd characters in user names",
    "S03": "variables with text that is special to YAML, with line ends, in any script",
    "S04": "an image that can't be pulled",
    "S06": "a slow start: which timeout wins",
    "L01": "Stop in a loop that prints without end",
    "L03": "Stop in a cell that awaits",
    "L05": "Stop while the kernel restarts",
    "L06": "cells that are run right after a restart",
    "L08": "a kernel that dies says why",
    "R01": "the network breaks and output comes in between",
    "R03": "clients that keep asking for a kernel that is gone",
    "R05": "the websocket's protocol is what was agreed",
    "P01": "100 MB of prints",
    "P03": "widgets with binary data",
    "P05": "text and paths in any script, and lone surrogates",
    "P06": "malformed websocket frames",
    "P09": "completion and help while a cell runs, and unknown subshells",
    "C01": "a quiet long cell that nobody watches",
    "C03": "an open tab in which nothing runs",
    "C05": "the GPU goes back after the cell",
    "G01": "getting a GPU fails half-way",
    "G03": "waiting for a GPU is seen and can be stopped",
    "K01": "a kernel's pod is deleted by hand",
    "K03": "the gateway is killed and started again",
    "K05": "fifty kernels at once",
    "X01": "template text in names",
    "X03": "path tricks in names and addresses",
    "X05": "a browser's pre-flight, and the token in header and address",
    "X08": "forged call-backs",
    "N01": "a batch run whose kernel dies",
    "N03": "jupyter console --existing",
    "D01": "a cell on many workers uses what the notebook defines",
    "D03": "and very large variables",
    "D04": "one worker fails while the others wait",
    "D06": "Stop during a cell on many workers, and again at once",
    "D08": "many workers print at once",
    "D11": "syntax errors, await and return in a cell on many workers",
    "D13": "versions differ between kernel and workers",
}


def marked() -> dict[str, list[str]]:
    """Test functions by the cases that they say they show."""
    found = defaultdict(list)
    for file in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for decorator in getattr(node, "decorator_list", ()):
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.case":
                    for argument in decorator.args:
                        found[ast.literal_eval(argument)].append(f"{file.relative_to(TESTS)}::{node.name}")
    return found


def test_each_case_that_one_machine_can_show_is_a_test() -> None:
    assert not CASES.keys() - marked().keys()


def test_no_test_names_a_case_that_is_not_listed() -> None:
    assert not marked().keys() - CASES.keys()
