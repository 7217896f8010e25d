"""The words after ``%%distributed``, as they are read."""

from __future__ import annotations

import re
from inspect import cleandoc

import pytest

from gateway.magics.burst.options import Usage, read, words_parser
from gateway.magics.distributed import Distributed, table

BURST = {"name": "b", "engine": "none", "workers": 2, "gpus": 8, "state": "running", "outcome": "", "created": 1.0, "ended": 3.0}


def test_ranks_are_counted_over_the_processes_of_all_workers() -> None:
    options = read("-w 2 -g 8 --procs 8 --ranks 0,15 --show 15 -e none")
    assert (options.workers, options.gpus, options.procs, options.give_back, options.show) == (2, 8, 8, (0, 15), (15,))
    assert options.voices == 16
    elastic = read("-w 2:4 --procs 2 --ranks 3 --show 7 -e none")
    assert (elastic.give_back, elastic.show, elastic.voices) == ((3,), (7,), 8)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("-w 2 --procs 2 --ranks 4", "of 4 ranks the last is rank 3"),
        ("-w 2:4 --procs 2 --ranks 4", "of 4 ranks the last is rank 3"),
        ("--procs 0", "1 or more"),
        ("--procs many", "1 or more"),
        ("--procs", "expected one argument"),
        ("--rank all", "there is no '--rank all', perhaps --ranks is meant"),
        ("-W 2", "there is no '-W 2', perhaps -w is meant"),
        ("--frobnicate", "there is no '--frobnicate'$"),
    ],
)
def test_what_can_t_be_is_refused(words: str, told: str) -> None:
    with pytest.raises(Usage, match=told):
        read(f"{words} -e none")


def test_each_word_is_explained_in_lines_that_a_notebook_shows_whole() -> None:
    for magic in (Distributed.distributed, Distributed.burst):
        assert max(map(len, cleandoc(magic.__doc__).splitlines())) <= 92
    for words in (action.option_strings for action in words_parser()._actions):
        assert any(re.search(rf"^ +{word} ", cleandoc(Distributed.distributed.__doc__), re.MULTILINE) for word in words), words


def test_an_image_is_whatever_the_gateway_lets_it_be() -> None:
    assert read("--image registry.example.com/torch:2 -e none").image == "registry.example.com/torch:2"
    assert read("-e none").image is None


def test_the_list_shows_workers_their_processes_and_all_of_their_gpus() -> None:
    several, plain = (table([{**BURST, **more}]).splitlines()[1].split() for more in ({"procs": 8}, {}))
    assert (several[2:6], plain[2:4]) == (["2", "x", "8", "16"], ["2", "16"])
