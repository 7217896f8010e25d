"""NumPy's arrays and pandas' frames: sent without a copy, changed in place, and sent back only if they changed."""

from __future__ import annotations

import pytest

numpy = pytest.importorskip("numpy", reason="NumPy is part of the test extra: pip install -e '.[test]'")


def address(blob) -> int:
    return numpy.frombuffer(blob, numpy.uint8).__array_interface__["data"][0]


def test_an_array_is_packed_as_it_lies_there(notebook):
    notebook.here("import numpy as np; a = np.arange(100_000.); f = np.asfortranarray(np.ones((300, 400)))")
    capsule = notebook.pack("a, f")
    addresses = {address(blob) for blob in capsule.blobs}
    assert {notebook[name].__array_interface__["data"][0] for name in "af"} <= addresses


@pytest.mark.case("D03")
def test_a_gigabyte_of_bytes_is_not_copied_either(notebook):
    notebook.here("b = bytes(5_000_000)")
    capsule = notebook.pack("b")
    assert any(blob is notebook["b"] for blob in capsule.blobs)


@pytest.mark.parametrize("size", [10, 100_000])
def test_an_array_is_changed_in_place(notebook, size):
    notebook.here(f"import numpy as np; a = np.zeros({size}); alias = a; untouched = np.ones({size})")
    report = notebook.there("a[3] = untouched[3]")
    assert notebook["alias"] is notebook["a"] and notebook["a"][3] == 1 and notebook["a"].sum() == 1
    assert report.mutated == ["a"]


def test_arrays_can_be_written_to_in_the_rank_and_at_home(notebook):
    notebook.here("import numpy as np; a = np.zeros(100_000)")
    notebook.there("a += 1; b = a * 2; c = np.ones(3)")
    for name in "abc":
        notebook[name][0] = 7
        assert notebook[name][0] == 7


def test_an_array_that_can_not_be_written_to_stays_so(notebook):
    notebook.here("import numpy as np; a = np.zeros(100_000); a.flags.writeable = False")
    notebook.there("w = a.flags.writeable; b = np.zeros(100_000); b.flags.writeable = False")
    assert not notebook["w"] and not notebook["b"].flags.writeable


def test_a_new_shape_in_place_is_taken_home(notebook):
    notebook.here("import numpy as np; a = np.arange(6.); holder = [a]")
    notebook.there("a.shape = (2, 3); a[0, 0] = 5")
    assert notebook["a"].shape == (2, 3) and notebook["a"][0, 0] == 5


@pytest.mark.parametrize(
    "make",
    [
        "np.array(5.)",
        "np.zeros((0, 3))",
        "np.arange(24).reshape(2, 3, 4)[:, ::2, ::-1]",
        "np.array([1, 'a', None, [2]], dtype=object)",
        "np.array([(1, 2.5)], dtype=[('a', 'i4'), ('b', 'f8')])",
        "np.array(['2020-01-01'], dtype='M8[D]')",
        "np.array(['ab', 'c'])",
        "np.ma.masked_array([1, 2], [True, False])",
        "np.arange(100_000, dtype='>f4')",
        "np.float32(2.5)",
    ],
)
def test_every_kind_of_array_goes_and_comes(notebook, make):
    notebook.here(f"import numpy as np; a = {make}")
    notebook.there("b = a.copy(); s = repr(a)")
    assert repr(notebook["b"]) == repr(notebook["a"]) == notebook["s"] and notebook["b"].dtype == notebook["a"].dtype


def test_object_arrays_tell_which_item_changed(notebook):
    notebook.here("import numpy as np; inner = [1]; a = np.array([inner, None], dtype=object)")
    notebook.there("a[1] = 'x'; a[0].append(2)")
    assert notebook["inner"] == [1, 2] and notebook["a"][0] is notebook["inner"] and notebook["a"][1] == "x"


def test_random_generators_go_on_where_the_rank_left_them(notebook):
    notebook.here("import numpy as np; rng = np.random.default_rng(3); bits = rng.bit_generator")
    notebook.there("first = rng.random()")
    local = numpy.random.default_rng(3)
    assert notebook["first"] == local.random() and notebook["rng"].random() == local.random()
    assert notebook["rng"].bit_generator is notebook["bits"]


@pytest.fixture
def frames(notebook):
    pytest.importorskip("pandas", reason="pandas is part of the test extra: pip install -e '.[test]'")
    notebook.here("import pandas as pd; import numpy as np")
    notebook.here("df = pd.DataFrame({'a': [1, 2, 3], 'b': list('xyz'), 'c': [.1, .2, .3]}, index=[5, 6, 7]); alias = df; part = df['a']")
    return notebook


@pytest.mark.parametrize(
    "change",
    [
        "df.loc[5, 'a'] = 100",
        "df['d'] = df.a * 2",
        "df.drop(columns='b', inplace=True)",
        "df.index = list('ijk')",
        "df['b'] = df.b.str.upper()",
        "df.sort_values('a', ascending=False, inplace=True)",
        "df.attrs['unit'] = 'm'",
        "df['k'] = pd.Categorical(['u', 'v', 'u'])",
    ],
)
def test_a_frame_is_changed_in_place(frames, change):
    before = frames["part"].copy()
    report = frames.there(change)
    local = type(frames)(frames.ranks)
    local.here("import pandas as pd\ndf = pd.DataFrame({'a': [1, 2, 3], 'b': list('xyz'), 'c': [.1, .2, .3]}, index=[5, 6, 7])")
    local.here(change)
    assert frames["alias"] is frames["df"] and frames["df"].equals(local["df"]) and frames["df"].attrs == local["df"].attrs
    assert report.mutated == ["df"] and frames["part"].equals(before)


def test_a_frame_that_is_only_read_does_not_come_back(frames):
    frames.here("wide = pd.DataFrame(np.ones((10_000, 20))); when = pd.Series(pd.date_range('2020', periods=3), name='t')")
    report = frames.there("n = len(df) + len(wide) + len(when); s = wide.sum().sum(); m = df.describe().to_string(); w = when.max()")
    assert not report.mutated and frames["n"] == 10_006 and frames["s"] == 200_000


def test_a_series_is_changed_in_place(frames):
    frames.here("s = pd.Series([1, 2], name='old'); other = s")
    frames.there("s.iloc[0] = 9; s.name = 'new'")
    assert frames["other"].tolist() == [9, 2] and frames["other"].name == "new"
