"""Whatever goes wrong on the gateway's API is told as ``{"message": cause and next step, "reason": short code}``."""

from __future__ import annotations

import json

import pytest

from tests.integration.test_server_kernels import raw

NOBODY = "nobody"  # asks without a token


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("GET", "/api/nothing", None, 404, "not_found"),
        ("GET", "/nothing", None, 404, "not_found"),
        ("GET", "/%ff", None, 400, "bad_request"),
        ("GET", "/api/kernels/%ff", None, 400, "bad_request"),
        ("GET", "/api/kernels/%00", None, 404, "not_found"),
        ("GET", "/api/kernels/1-2-3-4-5", None, 404, "no_such_kernel"),
        ("GET", "/api/kernelspecs/nonesuch", None, 404, "not_found"),
        ("GET", "/kernelspecs/elastic/..%2f..%2fetc/passwd", None, 403, "forbidden"),
        ("POST", "/kernelspecs/elastic/kernel.json", "{}", 405, "method_not_allowed"),
        ("DELETE", "/api/gpu", None, 405, "method_not_allowed"),
        ("POST", "/api/gpu/kernels/odd%20one/release", None, 404, "no_such_kernel"),
        ("POST", "/api/gpu/kernels/%00/hold", '{"seconds": 1}', 404, "no_such_kernel"),
        ("POST", "/api/gpu/kernels/1-2-3-4-5/hold", '{"seconds": 1}', 404, "no_such_kernel"),
        ("PATCH", "/api/gpu/policy", '{"idle_timeout": "soon"}', 400, "bad_request"),
        ("POST", "/api/kernels", '{"name": "nonesuch"}', 404, "no_such_kernelspec"),
        ("GET", "/api/kernels/1-2-3-4-5/channels", None, 404, "no_such_kernel"),
        ("GET", "/api/gpu", NOBODY, 403, "forbidden"),
        ("PATCH", "/api/gpu/policy", NOBODY, 403, "forbidden"),
        ("GET", "/api/gpu/events", NOBODY, 403, "forbidden"),
        ("GET", "/api/kernelspecs", NOBODY, 403, "forbidden"),
        ("GET", "/kernelspecs/elastic/kernel.json", NOBODY, 403, "forbidden"),
        ("GET", "/api/status", NOBODY, 403, "forbidden"),
        ("GET", "/api/me", NOBODY, 403, "forbidden"),
        ("GET", "/metrics", NOBODY, 403, "forbidden"),
        ("GET", "/api/nothing", NOBODY, 403, "forbidden"),
        ("GET", "/api/kernels/1-2-3-4-5/channels", NOBODY, 403, "forbidden"),
    ],
)
@pytest.mark.case("X03")
def test_every_error_has_the_one_form(gateway, method, path, body, status, reason):
    before = len(gateway.log)
    stranger = body == NOBODY
    got, text = raw(gateway, method, path, None if stranger else body, token=not stranger)
    assert got == status, text
    said = json.loads(text)
    assert said.keys() == {"message", "reason"}
    assert said["reason"] == reason
    assert 10 < len(said["message"]) < 400
    assert "Traceback" not in gateway.log[before:]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"idle_timeout": "soon"}, 'idle_timeout can\'t be "soon": it must be a number of seconds from 0 to 1e+15, or null.'),
        ({"min_hold": -1}, "min_hold can't be -1: it must be a number of seconds from 0 to 1e+15."),
        ({"min_hold": None}, "min_hold can't be null: it must be a number of seconds from 0 to 1e+15."),
        ({"min_hold": True}, "min_hold can't be true: it must be a number of seconds from 0 to 1e+15."),
        ({"gpus_per_user": 1.5}, "gpus_per_user can't be 1.5: it must be a whole number from 0 to 1e+15, or null."),
        ({"reclaim": 3}, "reclaim can't be 3: it must be true or false."),
    ],
)
def test_a_policy_that_can_not_hold_is_told_with_what_was_given_and_what_could(gateway, change, said):
    assert gateway.call("PATCH", "/api/gpu/policy", json=change).json() == {"message": said, "reason": "bad_request"}
