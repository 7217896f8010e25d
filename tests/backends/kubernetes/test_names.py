"""Whatever users and kernels are called, the cluster takes their names, and no two share one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.backends.kubernetes import names

LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

ODD = ["", "Ada", "ada", "ADA", "a" * 300, "a" * 301, "ada@example.org", "ada.example.org",
       "Ångström", "angstrom", "-", "--", "a-", "../etc",
       "x--0123456789", "用户", "\n", "\ud800", "a b", "a_b", "a/b", "ada--d83c0e7bb2"]  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_any_text_gives_a_valid_name(text: str) -> None:
    assert DNS_LABEL.fullmatch(names.slug(text))
    assert len(names.slug(text)) <= 40
    assert DNS_LABEL.fullmatch(names.kernel_pod(text))
    assert all(LABEL.fullmatch(value) for value in names.labels("lab", names.ROLE_KERNEL, text, text).values())


def test_odd_texts_never_share_a_name() -> None:
    assert len({names.slug(text) for text in ODD}) == len(ODD)


@given(st.text(max_size=60), st.text(max_size=60))
def test_two_texts_never_share_a_name(one: str, two: str) -> None:
    assert (names.slug(one) == names.slug(two)) == (one == two)


@given(st.from_regex(r"[a-z0-9-]{1,45}", fullmatch=True))
def test_what_looks_like_one_of_our_own_names_is_told_apart(text: str) -> None:
    made = names.slug(text)
    assert names.slug(made) != made or made == text


def test_ordinary_names_stay_readable() -> None:
    assert names.slug("ada") == "ada"
    assert names.slug("ada@example.org").startswith("ada-example-org--")
    assert names.kernel_pod("0d5bd4f5-41a9-4b43-8b1c-3a8a2f9a7d11") == "kernel-0d5bd4f5-41a9-4b43-8b1c-3a8a2f9a7d11"


def test_a_selector_finds_what_labels_mark() -> None:
    labels = names.labels("lab", names.ROLE_SLOT, "k1", "ada")
    wanted = dict(part.split("=") for part in names.selector("lab", names.ROLE_SLOT).split(","))
    assert wanted.items() <= labels.items()
