"""A rank's exception is raised in the notebook: the real one, with the notebook's own lines."""

from __future__ import annotations

import traceback

import pytest

from gateway.magics import capture
from gateway.protocol.transfer.failures import RankError

ODD = """class Odd(Exception):
    def __init__(self, a, b):
        super().__init__('%s-%s' % (a, b))
        self.a, self.b = a, b
def boom(x):
    raise Odd(x, [2])
"""


def failing(notebook, source, **options) -> BaseException:
    capsule = notebook.pack(source, **options)
    notebook.answer = notebook.ranks.run(capsule.blobs, {"RANK": 1})
    assert notebook.answer.failed
    return capture.failure(notebook.answer.failed, notebook.names)


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


@pytest.mark.case("D01")
def test_the_exception_is_the_notebooks_own_class_with_all_it_carries(notebook):
    notebook.here(ODD)
    error = failing(notebook, "boom('left')")
    assert type(error) is notebook["Odd"] and error.a == "left" and error.b == [2] and str(error) == "left-[2]"
    assert error.rank == 1 and "Odd: left-[2]" in error.rank_traceback


@pytest.mark.case("D04")
def test_the_traceback_shows_the_cells_line_as_in_the_notebook_and_none_of_ours(notebook):
    notebook.here(ODD)
    text = shown(failing(notebook, "x = 1\n\nfor i in range(2):\n    boom(x)"))
    assert 'File "<cell [2]>", line 5, in <module>\n    boom(x)' in text
    assert "line 6, in boom\n    raise Odd(x, [2])" in text
    assert "gateway" not in text and text.count("File") == 2


def test_a_function_begins_in_the_traceback_where_it_begins_in_the_notebook(notebook):
    """IPython counts from there."""
    notebook.here(ODD)
    error = failing(notebook, "boom(1)")
    frames = [(frame.f_code.co_name, frame.f_code.co_firstlineno, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    assert frames == [("<module>", 1, 2), ("boom", 5, 6)]
    assert [frame.f_lineno for frame, _ in traceback.walk_tb(error.__traceback__)] == [2, 6]


def test_the_ranks_own_text_shows_the_same(notebook):
    notebook.here(ODD)
    failing(notebook, "boom(1)")
    text = notebook.answer.text
    assert "boom(1)" in text and "raise Odd(x, [2])" in text and "gateway" not in text


def test_lines_count_from_the_magic_on_however_many_lines_it_has(notebook):
    error = failing(notebook, "1/0", header="%%time\n%%distributed -w 2\n")
    assert traceback.extract_tb(error.__traceback__)[-1].lineno == 4
    assert traceback.extract_tb(error.__traceback__)[-1].line == "1/0"


def test_causes_and_contexts_come_along(notebook):
    error = failing(notebook, "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b') from e")
    assert isinstance(error.__cause__, KeyError) and "direct cause" in shown(error) and "{}['a']" in shown(error)
    error = failing(notebook, "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b')")
    assert isinstance(error.__context__, KeyError) and "During handling" in shown(error)
    error = failing(notebook, "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b') from None")
    assert "KeyError" not in shown(error)


@pytest.mark.parametrize(
    "raising",
    [
        "open('/no/such/file')",
        "b'\\xff'.decode()",
        "import nothing_of_that_name",
        "raise SystemExit(3)",
        "raise KeyError('k')",
        "raise StopIteration(5)",
        "raise ExceptionGroup('several', [ValueError(1), TypeError(2)])",
        "import json; json.loads('{')",
        "import subprocess; subprocess.run(['false'], check=True)",
        "exec('x = (')",
        "undefined",
        "raise KeyboardInterrupt",
        "assert 1 == 2, 'told'",
        "1 + 'a'",
    ],
)
def test_exceptions_of_python_and_its_library_come_as_they_are(notebook, raising):
    error = failing(notebook, raising)
    try:
        exec(raising, {})
    except BaseException as exc:
        local = exc
    assert type(error) is type(local) and str(error) == str(local)
    common = ("errno", "filename", "start", "object", "name", "code", "value", "exceptions", "pos", "returncode", "lineno", "text")
    for name in common:
        assert repr(getattr(error, name, None)) == repr(getattr(local, name, None)), name


def test_an_exception_that_can_not_be_packed_is_told_in_words(notebook):
    error = failing(notebook, "import threading\nclass Held(Exception): pass\nraise Held('kept', threading.Lock())")
    assert isinstance(error, RankError) and "Held: ('kept', <unlocked" in str(error)
    assert "raise Held('kept', threading.Lock())" in shown(error)


def test_an_exception_whose_class_is_only_there_is_told_in_words(notebook, tmp_path):
    notebook.here(f"folder = {str(tmp_path)!r}")
    source = (
        "import sys\nopen(folder + '/there_only.py', 'w').write('class E(Exception): pass')\nsys.path.append(folder)\nimport there_only"
    )
    error = failing(notebook, source + "\nraise there_only.E('gone')")
    assert isinstance(error, RankError) and str(error) == "E: gone" and "raise there_only.E('gone')" in shown(error)


def test_an_exception_that_can_not_even_be_shown_is_told(notebook):
    error = failing(notebook, "class Mute(Exception):\n    def __str__(self): raise RuntimeError\nraise Mute")
    assert type(error).__name__ == "Mute" or "can't be shown" in str(error)


def test_a_class_of_the_cell_itself_comes_with_the_exception(notebook):
    error = failing(notebook, "class Own(Exception):\n    code = 7\nraise Own('x')")
    assert type(error).__name__ == "Own" and error.code == 7


def test_deep_recursion_is_told_without_drowning_the_notebook(notebook):
    error = failing(notebook, "def f(n): return f(n + 1)\nf(0)")
    assert isinstance(error, RecursionError) and len(traceback.extract_tb(error.__traceback__)) <= 200


def test_a_kernel_that_started_again_gets_the_words_or_by_what_was_sent_the_exception(notebook):
    notebook.here(ODD)
    capsule = notebook.pack("boom(1)")
    sent, answer = [bytes(blob) for blob in capsule.blobs], notebook.ranks.run(capsule.blobs)
    notebook.capsule = capsule = None
    error = capture.failure(answer.failed, {"__name__": "__main__"})
    assert isinstance(error, RankError) and str(error) == "Odd: 1-[2]" and "boom(1)" in shown(error)
    error = capture.failure(answer.failed, {"__name__": "__main__"}, sent=sent)
    assert type(error).__name__ == "Odd" and error.b == [2]


def test_leaving_with_success_is_no_failure(notebook):
    report = notebook.there("import sys\nx = 1\nsys.exit(0)")
    assert notebook["x"] == 1 and "x" in report.assigned
