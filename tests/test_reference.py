"""The page of settings is what the settings say."""

from __future__ import annotations

from tests.reference import PAGE, page


def test_the_page_of_settings_is_what_the_settings_say():
    assert PAGE.read_text() == page(), "run `python -m tests.reference`"
