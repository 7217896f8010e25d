"""What can't be sent is told before anything starts: where it lies, what it is, what to do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gateway.magics import capture
from gateway.protocol.transfer import serializer

CANNOT = {
    "a lock": ("import threading; x = threading.Lock()", "x (_thread.lock)", "inside the cell"),
    "an open file": ("x = open('/dev/null')", "x (_io.TextIOWrapper)", "an open file (/dev/null): open it inside the cell"),
    "a pipe": ("import multiprocessing; x, other = multiprocessing.Pipe()", "x (multiprocessing.connection.Connection)", "connect inside"),
    "a socket": ("import socket; x = socket.socket()", "x (socket.socket)", "connect inside the cell"),
    "a generator": ("x = (i for i in range(3))", "x (generator)", "list("),
    "a database connection": ("import sqlite3; x = sqlite3.connect(':memory:')", "x (sqlite3.Connection)", "connect inside the cell"),
    "a thread": ("import threading; x = threading.Thread()", "x (threading.Thread)", "start it inside the cell"),
    "an executor": ("from concurrent.futures import ThreadPoolExecutor; x = ThreadPoolExecutor()", "ThreadPoolExecutor", "inside the cell"),
    "the notebook itself": ("import sys; x = sys.modules['__main__']", "x (module)", "the notebook itself"),
    "a lock in a list in a dict": ("import threading; x = {'a': [1, threading.Lock()]}", "x['a'][1] (_thread.lock)", "inside the cell"),
    "a file in an attribute": ("class T: pass\nx = T(); x.log = T(); x.log.out = open('/dev/null')", "x.log.out (_io", "open file"),
    "a lock in a slot": (
        "import threading\nclass T:\n    __slots__ = 'l'\nx = T(); x.l = threading.Lock()",
        "x.l (_thread.lock)",
        "inside",
    ),
    "a lock in a closure": (
        "import threading\ndef m():\n    lock = threading.Lock()\n    return lambda: lock\nx = m()",
        "x → lock (_thread.lock)",
        "inside the cell",
    ),
    "a lock as a default": ("import threading\ndef x(lock=threading.Lock()): pass", "x → default 1 (_thread.lock)", "inside the cell"),
    "a method of what can't": ("class T: \n    def m(self): pass\nt = T(); t.f = open('/dev/null'); x = t.m", "x.__self__.f", "open file"),
    "a class's attribute": ("class x:\n    f = open('/dev/null')", "x.f (_io.TextIOWrapper)", "open file"),
}


@pytest.mark.parametrize("what", CANNOT)
def test_what_can_not_be_sent_is_told_with_its_path_and_the_remedy(notebook, what):
    make, path, remedy = CANNOT[what]
    notebook.here(make)
    with pytest.raises(capture.CaptureError) as told:
        notebook.pack("x")
    assert path in str(told.value) and remedy in str(told.value) and "Nothing was started" in str(told.value)
    assert told.value.reason == "not_captured"


def test_what_a_helper_needs_is_told_by_its_own_name(notebook):
    notebook.here(
        "import sqlite3; db = sqlite3.connect(':memory:')\ndef rows(): return db.execute('select 1')\ndef count(): return len(rows())"
    )
    with pytest.raises(capture.CaptureError, match=r"^db \(sqlite3.Connection\)"):
        notebook.pack("count()")


def test_what_the_cell_assigns_itself_is_left_out_with_a_warning(notebook):
    notebook.here("f = open('/dev/null')")
    capsule = notebook.pack("for path in ['/dev/null']:\n    f = open(path)\nf.close()")
    assert [item.name for item in capsule.listing] == [] and "the cell assigns f itself" in capsule.warnings[0]
    notebook.there("for path in ['/dev/null']:\n    f = open(path)\nn = f.read()")
    assert notebook["n"] == "" and not notebook["f"].closed


@pytest.mark.case("D11")
def test_a_syntax_error_has_the_notebooks_line(notebook):
    for source, line in (("ok = 1\nx = (", 3), ("return 5", 2), ("\n\nif 1:\nx = 2", 5), ("x = 1\r\ny = = 2", 3)):
        with pytest.raises(SyntaxError) as told:
            notebook.pack(source)
        assert told.value.lineno == line, source


@pytest.mark.case("D03")
def test_a_huge_name_is_told_with_its_size(notebook):
    notebook.here("big = bytes(3_000_000)")
    capsule = notebook.pack("len(big)", warn_bytes=2_000_000)
    assert "big has 0.0 GB" in capsule.warnings[0] and capsule.listing[0].bytes > 3_000_000


def test_a_module_of_the_users_own_folder_is_told(notebook, tmp_path, monkeypatch):
    (tmp_path / "mine_alone.py").write_text("def f(): return 4")
    monkeypatch.syspath_prepend(str(tmp_path))
    notebook.here("import mine_alone")
    capsule = notebook.pack("n = mine_alone.f()")
    assert "mine_alone is a file of yours" in capsule.warnings[0]
    notebook.there("n = mine_alone.f()")  # on one machine the rank sees that folder
    assert notebook["n"] == 4


def test_the_cloudpickle_that_comes_with_our_own_code_is_no_file_of_the_users(notebook, tmp_path, monkeypatch):
    monkeypatch.setattr(serializer, "VENDOR", tmp_path)
    (tmp_path / "brought_along.py").write_text("class A: pass")
    monkeypatch.syspath_prepend(str(tmp_path))
    notebook.here("import brought_along\nx = brought_along.A()")
    assert notebook.pack("x").warnings == []


def test_the_listing_says_what_would_go(notebook):
    notebook.here("import math\nclass A: pass\ndef f(): pass\nlst = [A()]")
    listing = {item.name: item for item in notebook.pack("math, A, f, lst").listing}
    assert {name: item.kind for name, item in listing.items()} == {"math": "module", "A": "class", "f": "function", "lst": "data"}
    assert listing["lst"].type == "list" and all(item.bytes for item in listing.values())


def test_packing_imports_nothing_that_the_notebook_has_not():
    code = "import sys; from gateway.magics import capture; capture.pack('x', {'x': [1]})\n"
    check = "print([name for name in ('numpy', 'torch', 'pandas', 'IPython', 'zmq') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code + check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_old_cloudpickle_is_told_with_the_remedy(notebook, monkeypatch):
    from gateway.protocol.transfer import serializer

    monkeypatch.setattr(serializer, "VERSION", "2.2.1")
    with pytest.raises(capture.CaptureError, match=r"pip|Install 'cloudpickle>=3.0'"):
        notebook.pack("1")


def test_objects_that_refuse_with_words_of_their_own_are_quoted(notebook):
    notebook.here("class T:\n    def __reduce__(self): raise TypeError('only on Mondays')\nx = [T()]")
    with pytest.raises(capture.CaptureError, match=r"x\[0\] \(T\).*only on Mondays"):
        notebook.pack("x")
