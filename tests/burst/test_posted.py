"""What a program may say of a burst: read with its defaults, or refused with the field's name."""

from __future__ import annotations

import pytest

from gateway.burst.posted import read
from gateway.protocol.errors import BadRequest
from gateway.protocol.transfer import versions, written
from gateway.protocol.transfer.blobs import header_of

LEAST = {"kernel_id": "a", "code": "print(RANK)"}


def test_a_kernel_and_a_cell_are_enough():
    posted = read(LEAST, 100)
    assert (posted.kernel_id, posted.code, posted.dry_run) == ("a", "print(RANK)", False)
    assert posted.wanted == {"workers": 2, "engine": "none", "detach": True, "restartable": False, "on_demand": False}
    assert posted.for_ranks == {
        "pip": {"same": [], "wanted": []}, "out": None, "give_back": [0], "init": False, "save_every": 300.0, "compress": None,
    }  # fmt: skip


def test_null_is_as_if_it_were_not_said():
    assert read({**LEAST, "most": None, "detach": None, "ranks": None}, 100) == read(LEAST, 100)


def test_what_is_said_is_passed_on():
    said = {"workers": 2, "most": 4, "engine": "torch", "gpus": 1, "name": "x", "timeout_seconds": 5, "queue": "q", "launcher": "job"}
    posted = read(
        {**LEAST, **said, "detach": False, "ranks": "all", "out": ["loss"], "pip": ["einops==0.8"], "compress": "powersgd:4"}, 100
    )
    assert {name: posted.wanted[name] for name in said} == said
    assert posted.wanted["detach"] is False
    assert posted.for_ranks["give_back"] is None
    assert (posted.for_ranks["out"], posted.for_ranks["init"], posted.for_ranks["compress"]) == (["loss"], True, "powersgd:4")
    assert posted.for_ranks["pip"] == {"same": [], "wanted": ["einops==0.8"]}


def test_ranks_are_counted_over_the_processes_of_all_workers():
    posted = read({**LEAST, "procs": 2, "ranks": [3], "image": "lab:2"}, 100)
    assert (posted.wanted["procs"], posted.wanted["image"], posted.for_ranks["give_back"]) == (2, "lab:2", [3])
    with pytest.raises(BadRequest, match="ranks must be a list of numbers of ranks below 4"):
        read({**LEAST, "procs": 2, "ranks": [4]}, 100)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"kernel_id": 3}, "kernel_id"),
        ({"kernel_id": None}, "kernel_id"),
        ({"code": None}, "code"),
        ({"code": " \n"}, "code"),
        ({"code": ["print(1)"]}, "code"),
        ({"code": "x" * 101}, "code has 101 bytes"),
        ({"code": "'\0'"}, "code"),
        ({"code": "'\ud800'"}, "code"),
        ({"worker": 3}, "'worker'"),
        ({"detach": 1}, "detach"),
        ({"restartable": "yes"}, "restartable"),
        ({"on_demand": 0}, "on_demand"),
        ({"init": "no"}, "init"),
        ({"dry_run": 1}, "dry_run"),
        ({"name": ""}, "name"),
        ({"pip": "einops"}, "pip"),
        ({"pip": ["--index-url=https://example.org"]}, "pip"),
        ({"pip": ["installed"]}, "installed"),
        ({"out": ["no name"]}, "out"),
        ({"out": "loss"}, "out"),
        ({"ranks": [2]}, "ranks"),
        ({"ranks": [True]}, "ranks"),
        ({"ranks": []}, "ranks"),
        ({"ranks": 0}, "ranks"),
        ({"save_every_seconds": 0}, "save_every_seconds"),
        ({"save_every_seconds": True}, "save_every_seconds"),
        ({"compress": "fp16"}, "torch"),
        ({"engine": "torch", "compress": "gzip"}, "compress"),
    ],
)
def test_whatever_can_t_be_is_refused_by_its_name(said, named):
    with pytest.raises(BadRequest, match=named):
        read({**LEAST, **said}, 100)


def test_a_capsule_of_text_holds_no_pickle_and_fits_every_version():
    (only,) = written.pack("a = 1\r\nprint(device)", "<burst x>", ["/home/ada"])
    header = header_of([only])
    assert (header["frames"], header["source"]["text"], header["reads"]) == ([], "a = 1\nprint(device)", ["device"])
    assert versions.differences(header["facts"]) == []
