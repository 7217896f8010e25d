"""What a request may ask for, and what it is told where it asks for more."""

from __future__ import annotations

import pytest

from gateway.backends.wishes import gpu_count, launch_limit
from gateway.protocol.errors import BadRequest
from gateway.settings import LocalBackend


def test_gpus_can_be_asked_for_within_the_kernelspecs_limit() -> None:
    assert gpu_count({}, 1, 0) == 1 and gpu_count({"KERNEL_GPUS": "9"}, 1, None) == 9
    assert [gpu_count({"KERNEL_GPUS": wish}, 1, 4) for wish in ("", "0", "4", " 2 ")] == [1, 0, 4, 2]
    for wish in ("5", "-1", "1.5", "many", "1e3", "٣", "99999"):
        with pytest.raises(BadRequest, match=r"KERNEL_GPUS.*from 0 to 4"):
            gpu_count({"KERNEL_GPUS": wish}, 1, 4)


@pytest.mark.case("S06")
def test_a_client_may_wait_longer_or_shorter_within_the_admins_bounds() -> None:
    local = LocalBackend(launch_timeout=300, max_launch_timeout=500)

    def limit(wish: str) -> tuple[float, str]:
        return launch_limit({"KERNEL_LAUNCH_TIMEOUT": wish}, local)

    assert limit("") == (300, "LocalBackend.launch_timeout")
    assert limit("5") == (5, "this request's KERNEL_LAUNCH_TIMEOUT")
    assert limit("400")[0] == 400
    assert limit("9999")[0] == 500
    assert "max_launch_timeout" in limit("9999")[1]
    assert limit("40") == (300, "LocalBackend.launch_timeout"), "what stock servers send is nobody's wish"
    for wish in ("0", "-1", "nan", "soon"):
        with pytest.raises(BadRequest, match="KERNEL_LAUNCH_TIMEOUT"):
            limit(wish)
    assert launch_limit({"KERNEL_LAUNCH_TIMEOUT": "400"}, LocalBackend(launch_timeout=300, max_launch_timeout=None))[0] == 300
