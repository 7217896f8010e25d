"""Any picture of objects that share each other: changed in a rank and taken home, it is what it would have been in the notebook."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.binary(max_size=5), st.floats(allow_nan=False))
KINDS = ("list", "dict", "instance", "bytearray", "set")


@st.composite
def pictures(draw) -> list[tuple[str, list[Any]]]:
    """Objects by number: a kind, and what is in it (scalars, or ``("of", number)``), cycles included."""
    count = draw(st.integers(1, 6))
    item = st.one_of(SCALARS, st.integers(0, count - 1).map(lambda number: ("of", number)))
    return draw(st.lists(st.tuples(st.sampled_from(KINDS), st.lists(item, max_size=4)), min_size=count, max_size=count))


@st.composite
def stories(draw):
    picture = draw(pictures())
    item = st.one_of(SCALARS, st.integers(0, len(picture) - 1).map(lambda number: ("of", number)), st.just(("new",)))
    steps = st.tuples(st.sampled_from(["add", "drop", "clear", "bind"]), st.integers(0, len(picture) - 1), item)
    return picture, draw(st.lists(steps, max_size=6))


LIBRARY = """
class Thing: pass

def empty(kind):
    return {"list": list, "dict": dict, "instance": Thing, "bytearray": bytearray, "set": set}[kind]()

def add(obj, value, number=0):
    if isinstance(obj, list): obj.append(value)
    elif isinstance(obj, dict): obj[f"k{len(obj)}"] = value
    elif isinstance(obj, bytearray): obj.append(number % 256)
    elif isinstance(obj, set): obj.add(value if isinstance(value, (int, str, bytes, float, type(None), Thing)) else 1)
    else: setattr(obj, f"a{len(vars(obj))}", value)

def drop(obj):
    items = vars(obj) if isinstance(obj, Thing) else obj
    if isinstance(items, dict):
        if items: items.popitem()
    elif isinstance(items, set):
        items.discard(1)
    elif items: items.pop()

def clear(obj):
    (vars(obj) if isinstance(obj, Thing) else obj).clear()

def build(picture):
    objects = [empty(kind) for kind, _ in picture]
    for obj, (_, items) in zip(objects, picture):
        for n, item in enumerate(items):
            add(obj, objects[item[1]] if isinstance(item, tuple) else item, n)
    return objects

def change(objects, steps, names):
    for verb, at, item in steps:
        value = objects[item[1]] if isinstance(item, tuple) and item[0] == "of" else [at, Thing()] if isinstance(item, tuple) else item
        if verb == "add": add(objects[at], value, at)
        elif verb == "drop": drop(objects[at])
        elif verb == "clear": clear(objects[at])
        else: names[f"new{at}"] = value
"""


def portrait(roots: list[Any]) -> Any:
    """What can be told of objects without their identities: kinds, contents, and which is which."""
    numbers: dict[int, int] = {}
    kept = []

    def of(value: Any) -> Any:
        if type(value) in (type(None), bool, int, str, bytes, float):
            return type(value).__name__, value
        if id(value) in numbers:
            return "again", numbers[id(value)]
        numbers[id(value)] = len(numbers)
        kept.append(value)
        if isinstance(value, bytearray):
            return "bytearray", bytes(value)
        if isinstance(value, dict):
            return "dict", [(key, of(item)) for key, item in value.items()]
        if isinstance(value, set):
            plain = sorted(repr(item) for item in value if type(item).__name__ != "Thing")
            return "set", plain, len(value)
        if isinstance(value, list):
            return "list", [of(item) for item in value]
        return type(value).__name__, [(key, of(item)) for key, item in vars(value).items()]

    return [of(root) for root in roots]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stories())
def test_a_rank_changes_objects_as_the_notebook_itself_would_have(notebook, story):
    picture, steps = story
    here, there = type(notebook)(notebook.ranks), type(notebook)(notebook.ranks)
    for each in (here, there):
        each.here(LIBRARY)
        each.names.update(picture=copy.deepcopy(picture), steps=steps)
        each.here("objects = build(picture)\nholder = list(objects)\nmade = {}")
    here.here("change(objects, steps, made)")
    identities = [id(obj) for obj in there["objects"]]
    report = there.there("change(objects, steps, made)")
    assert not report.skipped
    assert portrait([here["objects"], here["made"], here["holder"]]) == portrait([there["objects"], there["made"], there["holder"]])
    assert [id(obj) for obj in there["objects"]] == identities and all(
        a is b for a, b in zip(there["objects"], there["holder"], strict=True)
    )
    things = [obj for obj in there["objects"] if type(obj).__name__ == "Thing"]
    assert all(type(obj) is there["Thing"] for obj in things)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pictures())
def test_what_a_cell_only_looks_at_does_not_come_home(notebook, picture):
    notebook.here(LIBRARY)
    notebook.names.update(picture=picture)
    notebook.here("objects = build(picture)")
    report = notebook.there("n = len(objects)")
    assert report.mutated == [] and report.assigned == ["n"]
