"""What coming up costs: nothing that the gateway has no use for is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jupyter_server

START = """
import sys
from gateway.cli import main
try:
    main(["--version"])
finally:
    print("grammar" if "lark" in sys.modules else "none")
"""


def test_the_gateway_comes_up_without_the_grammar_of_a_format_that_no_event_has():
    said = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, timeout=100, check=False)
    assert said.stdout.splitlines()[-1] == "none", said.stderr
    schemas = list(Path(jupyter_server.__file__).parent.rglob("event_schemas/**/*.y*ml"))
    assert schemas and not any("iri" in schema.read_text().replace("description", "").split() for schema in schemas)
