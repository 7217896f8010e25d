"""The shape of the repository: who may import whom, how large a room gets, and that what is promised is documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from traitlets import HasTraits, TraitType

import gateway
from gateway.protocol import errors

ROOT = Path(__file__).parents[1]
SOURCES = sorted(file for file in (ROOT / "gateway").rglob("*.py") if "node_modules" not in file.parts)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
ELSEWHERE = {"gateway.enterprise.proxy.process_proxy"}  # imported by Enterprise Gateway in its own environment: tests/enterprise does that
NAMES = [
    module.name
    for module in pkgutil.walk_packages(gateway.__path__, "gateway.")
    if not module.name.endswith("__main__") and module.name not in ELSEWHERE
]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_imports_run_downward_only():
    # In a process of its own: it silences every logger that it finds
    lint = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache"]
    done = subprocess.run(lint, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=shown)
def test_no_file_is_longer_than_five_hundred_lines(path):
    assert len(path.read_text().splitlines()) <= 500


def test_nothing_is_called_utils():
    assert not [path for path in [*SOURCES, *TESTS] if "util" in path.stem]


@pytest.mark.parametrize("path", [path for path in SOURCES if path.read_text().strip()], ids=shown)
def test_each_module_says_what_it_is_for(path):
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", SOURCES, ids=shown)
def test_no_module_reads_the_environment_as_it_is_imported(path):
    reads = [node for node in at_import(ast.parse(path.read_text())) if is_environment(node)]
    assert not reads, f"line {reads[0].lineno}"


def at_import(node: ast.AST) -> Iterator[ast.expr]:
    """All expressions that run when a module is imported: everything but the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in [*child.decorator_list, *child.args.defaults, *filter(None, child.args.kw_defaults)]:
                yield part
                yield from at_import(part)
        elif isinstance(child, ast.Lambda) or is_main_guard(child):
            continue
        else:
            if isinstance(child, ast.expr):
                yield child
            yield from at_import(child)


def is_main_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def is_environment(node: ast.expr) -> bool:
    return ast.unparse(node) in ("os.environ", "os.getenv", "environ", "getenv")


@pytest.mark.parametrize("name", NAMES)
def test_each_module_can_be_imported_by_itself(name):
    importlib.import_module(name)


@pytest.mark.parametrize("error", [cls for _, cls in inspect.getmembers(errors, inspect.isclass)], ids=lambda cls: cls.__name__)
def test_each_error_is_explained_and_has_a_code_of_its_own(error):
    assert error.__doc__
    others = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if cls is not error]
    assert error.reason not in {other.reason for other in others}


def settings() -> list[tuple[type, str, TraitType]]:
    found = {}
    for name in NAMES:
        for _, cls in inspect.getmembers(importlib.import_module(name), inspect.isclass):
            if issubclass(cls, HasTraits) and cls.__module__.startswith("gateway."):
                for setting, trait in cls.class_traits(config=True).items():
                    if trait.this_class.__module__.startswith("gateway."):
                        found[trait.this_class.__name__, setting] = (trait.this_class, setting, trait)
    return list(found.values())


@pytest.mark.parametrize(
    ("cls", "name", "trait"), settings(), ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", "")
)
def test_each_setting_says_what_it_means_and_what_none_means(cls, name, trait):
    assert len(trait.help) > 30, f"{cls.__name__}.{name} is not explained"
    if trait.allow_none:
        assert "None" in trait.help, f"{cls.__name__}.{name} doesn't say what None means"


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def test_the_readmes_first_block_runs_the_demo():
    assert "jupyter elastic-gateway demo" in blocks()[0]


def test_the_readmes_second_block_is_what_ci_runs():
    command = blocks()[1].strip()
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_readme_names_every_subcommand_and_every_main_setting():
    text = (ROOT / "README.md").read_text()
    from gateway.cli import COMMANDS

    for name in COMMANDS:
        assert f"`{name}`" in text or f"elastic-gateway {name}" in text, name
    for cls, name, _ in settings():
        if cls.__name__ in ("ElasticGateway", "Leases", "SimulatedGpu"):
            assert f"`{cls.__name__}.{name}`" in text, f"{cls.__name__}.{name}"
