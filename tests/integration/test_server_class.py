"""A class begins: fifty kernels at once, on a gateway that others are using."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

CLASS = 50


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.case("K05")
def test_a_whole_class_starts_at_once_and_nobody_else_waits_for_it(gateway):
    everybody_is_there = threading.Barrier(CLASS)
    seen: list[Counter[str]] = []

    def pupil(at: int) -> str:
        with gateway.kernel(KERNEL_USERNAME=f"user{at}") as kernel:
            browser = kernel.open()
            browser.run("1", 300)
            everybody_is_there.wait(300)
            return browser.run(f"print({at})", 300).out

    with gateway.kernel() as old, ThreadPoolExecutor(CLASS) as class_room:
        browser = old.open()
        browser.run("1")
        pupils = [class_room.submit(pupil, at) for at in range(CLASS)]
        while not all(each.done() for each in pupils):
            assert browser.run("print(1)").out == "1\n"
            seen.append(Counter(kernel["execution_state"] for kernel in gateway.call("GET", "/api/kernels").json()))
        assert [each.result() for each in pupils] == [f"{at}\n" for at in range(CLASS)]
    assert max(states["starting"] for states in seen) > CLASS / 2, "they start side by side, and the list is there meanwhile"
