"""What a cell reads goes to a rank, what it assigned and changed comes home, and it is the same objects that changed."""

from __future__ import annotations

import logging
import math

import pytest

from gateway.magics import capture
from gateway.protocol.transfer.failures import RankError


def test_what_a_cell_assigns_is_assigned_in_the_notebook(notebook):
    notebook.here("x = 2")
    report = notebook.there("y = x + 40")
    assert notebook["y"] == 42 and report.assigned == ["y"] and not report.mutated and not report.skipped


def test_names_that_a_cell_makes_in_its_own_ways_come_home(notebook):
    notebook.there("from math import *\nglobals()['made'] = floor(2.5)\ndef f():\n    global inner\n    inner = 1\nf()\nimport json as js")
    assert (notebook["made"], notebook["inner"], notebook["pi"]) == (2, 1, math.pi)
    assert notebook["js"].dumps([1]) == "[1]"


def test_what_a_rank_brings_itself_stays_there(notebook):
    report = notebook.there("n = RANK + WORLD_SIZE", names={"RANK": 3, "WORLD_SIZE": 4, "LOCAL_RANK": 0})
    assert report.assigned == ["n"] and notebook["n"] == 7 and "RANK" not in notebook.names


def test_a_rank_has_its_own_rank_whatever_the_notebook_calls_so(notebook):
    notebook.here("RANK = 'mine'")
    notebook.there("n = RANK")
    assert notebook["n"] == 0 and notebook["RANK"] == "mine"


def test_an_object_that_changed_is_the_same_object_so_aliases_stay_true(notebook):
    notebook.here("items = [1]; alias = items; holder = {'items': items}; kinds = {'a'}; data = bytearray(b'abc')")
    report = notebook.there("items.append(2); holder['new'] = items; kinds.add('b'); data[0] = 65")
    assert notebook["alias"] is notebook["items"] == [1, 2]
    assert notebook["holder"]["items"] is notebook["holder"]["new"] is notebook["items"]
    assert notebook["kinds"] == {"a", "b"} and notebook["data"] == b"Abc"
    assert set(report.mutated) == {"items", "holder", "kinds", "data"} and report.assigned == []


def test_an_object_is_changed_in_place_however_deep_it_lies(notebook):
    notebook.here("class Node:\n    def __init__(self): self.next, self.values = None, []\nfirst, last = Node(), Node()\nfirst.next = last")
    report = notebook.there("first.next.values.append(5)\nfirst.next.extra = first")
    assert notebook["last"].values == [5] and notebook["last"].extra is notebook["first"]
    assert report.mutated == ["first"]  # the only name that the cell read


def test_what_did_not_change_is_not_sent_back(notebook):
    notebook.here("big = bytearray(10_000_000); items = [big]")
    report = notebook.there("size = len(items[0])")
    assert not report.mutated and sum(map(len, notebook.answer.back)) < 10_000


def test_new_objects_that_share_another_still_share_it_at_home(notebook):
    notebook.there("a = [1]\nb = {'a': a}\nc = (a, b)")
    assert notebook["b"]["a"] is notebook["a"] is notebook["c"][0]


DATACLASS = """
from dataclasses import dataclass, field
@dataclass
class D:
    n: int = 0
    l: list = field(default_factory=list)
x = D()
"""
WITH_GETSTATE = """
class G:
    def __init__(self): self.kept, self.cache = 1, object()
    def __getstate__(self): return {'kept': self.kept}
    def __setstate__(self, state): self.kept, self.cache = state['kept'], 'new'
x = G()
"""
KINDS = {
    "OrderedDict": ("from collections import OrderedDict; x = OrderedDict(a=1, b=2)", "x.move_to_end('a')"),
    "defaultdict": ("from collections import defaultdict; x = defaultdict(list, a=[1])", "x['b'].append(2)"),
    "Counter": ("from collections import Counter; x = Counter('aab')", "x.update('c')"),
    "deque": ("from collections import deque; x = deque([1, 2], maxlen=2)", "x.append(3)"),
    "array": ("import array; x = array.array('d', [1, 2])", "x[0] = 9"),
    "a list's subclass": ("class L(list): pass\nx = L([1]); x.tag = 'a'", "x.append(2); x.tag = 'b'"),
    "slots": ("class S:\n    __slots__ = ('a', 'b')\nx = S(); x.a = 1", "x.b = 2; del x.a"),
    "a dataclass": (DATACLASS, "x.n = 4; x.l.append(1)"),
    "Random": ("import random; x = random.Random(4)", "x.random()"),
    "a function's attribute": ("def x(): return x.calls\nx.calls = 0", "x.calls += 1"),
    "a class's attribute": ("class X:\n    count = 0\nx = X", "X.count += 1; x.other = [1]"),
    "__getstate__": (WITH_GETSTATE, "x.kept = 2"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_object_is_changed_in_place(notebook, kind):
    make, change = KINDS[kind]
    notebook.here(f"{make}\nalias = x")
    local = type(notebook)(notebook.ranks)
    local.here(f"{make}\n{change}")
    report = notebook.there(change)
    assert notebook["x"] is notebook["alias"] and "x" in report.mutated + report.assigned

    def shown(value):
        state = getattr(value, "getstate", None)
        slots = [getattr(value, name, None) for name in getattr(type(value), "__slots__", ())]
        attributes = {k: v for k, v in getattr(value, "__dict__", {}).items() if not k.startswith("__") and k != "cache"}
        items = list(value.items()) if isinstance(value, dict) else list(value) if hasattr(value, "__iter__") else None
        return items, state() if state else None, slots, attributes

    assert shown(notebook["x"]) == shown(local["x"])


def test_functions_see_names_that_the_cell_assigns_anew(notebook):
    notebook.here("scale = 2\ndef helper(v): return v * scale\ndef outer(v): return helper(v)")
    notebook.there("scale = 10\nseen = outer(4)")
    assert notebook["seen"] == 40 and notebook["scale"] == 10


def test_functions_bring_what_they_need_and_no_more(notebook):
    notebook.here("import math\nbase = 3\nunused = bytes(1000)\ndef inner(v): return math.sqrt(v) + base\ndef outer(v): return inner(v)")
    capsule = notebook.pack("x = outer(4)")
    assert {item.name for item in capsule.listing} == {"outer", "inner", "math", "base"}


def test_a_function_made_in_the_cell_works_at_home_with_the_notebooks_names(notebook):
    notebook.here("scale = 2; big = [0]")
    notebook.there("def times(v): return v * scale + len(big)")
    notebook.here("scale = 5")
    assert notebook["times"](3) == 16 and notebook["times"].__globals__ is notebook.names


COUNTER = """
def counter():
    n = 0
    def inc():
        nonlocal n; n += 1
    def get(): return n
    return inc, get
inc, get = counter()
"""


def test_functions_that_share_a_variable_share_it_there_and_at_home(notebook):
    notebook.here(COUNTER)
    notebook.there("inc(); inc(); n = get()")
    assert notebook["n"] == 2 and notebook["get"]() == 2
    notebook["inc"]()
    assert notebook["get"]() == 3


FUNCTIONS = """
n = 10
def clos(m):
    def inner(x): return x*m + n
    return inner
f = clos(3); g = lambda x: f(x) + 1
def fact(i): return 1 if i < 2 else i*fact(i-1)
def make():
    def inner(i): return 1 if i < 2 else i*inner(i-1)
    return inner
local = make()
def gen(k): yield from range(k)
"""


@pytest.mark.case("D01")
def test_lambdas_recursion_closures_and_generator_functions_work_there(notebook):
    notebook.here(FUNCTIONS)
    notebook.there("r = [g(2), fact(5), local(5), list(gen(3)), sorted([3, 1], key=lambda v: -v + n)]")
    assert notebook["r"] == [17, 120, 120, [0, 1, 2], [3, 1]]


@pytest.mark.case("D01")
def test_what_comes_home_is_an_instance_of_the_notebooks_own_class(notebook):
    notebook.here(
        "from enum import Enum\nclass Color(Enum): RED = 1\nclass A:\n    def hi(self): return 'A'\nclass B(A):\n"
        "    class In: v = 5\n    def hi(self): return super().hi() + 'B'"
    )
    notebook.there("b = B(); c = Color.RED; made = [A(), B.In()]; said = b.hi()")
    assert type(notebook["b"]) is notebook["B"] and notebook["c"] is notebook["Color"].RED and notebook["said"] == "AB"
    assert isinstance(notebook["made"][0], notebook["A"]) and type(notebook["made"][1]) is notebook["B"].In


@pytest.mark.case("D01")
def test_a_class_that_is_defined_anew_is_the_one_that_the_next_cell_gets(notebook):
    notebook.here("def f(): return 'old'")
    notebook.there("a = f()")
    notebook.here("def f(): return 'new'")
    notebook.there("b = f()")
    assert (notebook["a"], notebook["b"]) == ("old", "new")


def test_a_class_of_the_cell_itself_comes_home_with_its_instances(notebook):
    notebook.there("class New:\n    def __init__(self, v): self.v = v\n    def twice(self): return self.v * 2\none = New(4)")
    assert type(notebook["one"]) is notebook["New"] and notebook["one"].twice() == 8
    notebook.there("two = New(5); kind = type(one) is New")
    assert type(notebook["two"]) is notebook["New"] and notebook["kind"]


def test_loggers_and_modules_go_by_name(notebook):
    notebook.here("import logging, os.path as p\nlog = logging.getLogger('some.name')")
    notebook.there("name = log.name; mine = log; joined = p.join('a', 'b')")
    assert notebook["name"] == "some.name" and notebook["joined"] == "a/b" and notebook["mine"] is logging.getLogger("some.name")


def test_a_name_that_the_ranks_delete_is_kept_and_told(notebook):
    notebook.here("x = [1]; y = 2")
    report = notebook.there("del x\nglobal y\ndel y")
    assert notebook["x"] == [1] and set(report.skipped) == {"x", "y"} and "keeps its own" in report.skipped["x"]


def test_a_result_that_can_not_be_packed_is_named_and_the_others_come_home(notebook):
    notebook.here("kept = [1]; other = {}")
    report = notebook.there(
        "import threading\nlock = threading.Lock()\nkept.append(2)\nother['l'] = [threading.Lock()]\nok = 5\ngen = (i for i in ())"
    )
    assert notebook["ok"] == 5 and notebook["kept"] == [1, 2] and notebook["other"] == {}
    assert set(report.skipped) == {"lock", "other", "gen"}
    assert "inside the cell" in report.skipped["lock"] and "lock" in report.skipped["other"]


ONLY_THERE = """
import sys
open(folder + '/only_there.py', 'w').write('class T: pass')
sys.path.append(folder)
import only_there
t = only_there.T()
pair = [t]
fine = [1]
also = fine
kept.append(3)
"""


def test_a_result_that_can_not_be_loaded_at_home_costs_only_what_shares_it(notebook, tmp_path):
    notebook.here(f"kept = []; folder = {str(tmp_path)!r}")
    report = notebook.there(ONLY_THERE)
    assert notebook["also"] is notebook["fine"] == [1] and notebook["kept"] == [3]
    assert set(report.skipped) == {"only_there", "t", "pair"} and "No module named" in report.skipped["only_there"]
    assert "shares objects" in report.skipped["pair"]


def test_out_brings_home_only_what_it_names(notebook):
    notebook.here("a, b = [], []")
    report = notebook.there("a.append(1); b.append(1); c = d = 1", returning={"out": ["a", "c", "typo"]})
    assert notebook["a"] == [1] and notebook["b"] == [] and notebook["c"] == 1 and "d" not in notebook.names
    assert report.skipped == {"typo": "the cell didn't make it"}


@pytest.mark.case("D03")
def test_results_over_the_limit_are_named_with_their_size(notebook):
    report = notebook.there("small = 1\nlarge = bytes(3_000_000)\nlast = 2", returning={"limit": 1_000_000})
    assert notebook["small"] == 1 and notebook["last"] == 2 and "3 MB" in report.skipped["large"]


def test_a_failure_over_the_limit_comes_home_without_what_its_exception_holds(notebook):
    cell = "class Big(Exception): pass\nerror = Big('why')\nerror.data = bytes(3_000_000)\nraise error"
    with pytest.raises(RankError, match="Big: why"):
        notebook.there(cell, returning={"limit": 1_000_000})


def test_in_sends_what_the_cell_does_not_seem_to_read_and_no_in_sends_nothing(notebook):
    notebook.here("hidden = 7; seen = 8")
    notebook.there("x = eval('hid' + 'den')", include=("hidden",))
    assert notebook["x"] == 7
    assert notebook.pack("seen", nothing=True).listing == []
    with pytest.raises(capture.CaptureError, match="check the spelling"):
        notebook.pack("1", include=("hiden",))


def test_a_kernel_that_started_again_takes_results_by_what_was_sent(notebook):
    notebook.here("items = [1]; class_ = 5\nclass P: pass\np = P()\ndef f(): return items")
    capsule = notebook.pack("items.append(2); q = P(); q.items = items; n = len(f())")
    sent, answer = [bytes(blob) for blob in capsule.blobs], notebook.ranks.run(capsule.blobs)
    notebook.capsule = capsule = None
    fresh = {"__name__": "__main__"}
    with pytest.raises(capture.CaptureError, match="what was sent"):
        capture.take(answer.back, fresh)
    report = capture.take(answer.back, fresh, sent=sent)
    assert fresh["items"] == [1, 2] and fresh["q"].items is fresh["items"] and fresh["n"] == 2 and report.mutated == ["items"]


def test_the_notebooks_objects_are_not_touched_by_packing(notebook):
    notebook.here("x = {'a': [1, 2]}; import copy; before = copy.deepcopy(x); def_ = 1\nclass T: pass\nt = T(); state = dict(vars(t))")
    notebook.pack("x, t, T")
    assert notebook["x"] == notebook["before"] and vars(notebook["t"]) == notebook["state"]


def test_results_of_several_ranks_are_lists_and_changes_are_the_first_ones(notebook):
    notebook.here("items = []; base = 10")
    capsule = notebook.pack("import json; items.append(RANK); mine = RANK * 2\ndef f(): return base\nclass K: pass")
    backs = {rank: notebook.ranks.run(capsule.blobs, {"RANK": rank}).back for rank in (2, 0, 1)}
    report = capture.take_each(backs, notebook.names)
    assert notebook["mine"] == [0, 2, 4] and notebook["items"] == [0] and report.mutated == ["items"]
    assert set(report.assigned) == {"json", "mine", "f", "K"}


def test_what_a_cell_imports_or_defines_is_no_list_whatever_ranks_results_are_of(notebook):
    notebook.here("base = 10")
    capsule = notebook.pack("import json\nfrom collections import Counter\nfrom math import sin\ndef f(): return base\nclass K: pass")
    capture.take_each({rank: notebook.ranks.run(capsule.blobs, {"RANK": rank}).back for rank in (0, 1)}, notebook.names)
    notebook.here("base = 11; made = json.dumps(Counter('a')), sin(0), f(), type(K())")
    assert notebook["made"] == ('{"a": 1}', 0.0, 11, notebook["K"])
