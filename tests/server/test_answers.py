"""What an error becomes on its way to a client, and who is asked for a proof."""

from __future__ import annotations

import pytest

from gateway.protocol import errors
from gateway.protocol.errors import ElasticError
from gateway.server.answers import Answer
from gateway.server.auth import ElasticIdentityProvider
from gateway.server.messages import failure, message, status


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.BadRequest("x"), 400),
        (errors.BadRequest("x", reason="too_large"), 413),
        (errors.SettingError("x"), 400),
        (errors.ImpossibleRequest("x"), 400),
        (errors.ExecutingError("x"), 409),
        (errors.LeaseError("x"), 409),
        (errors.LeaseError("x", reason="no_such_kernel"), 404),
        (ElasticError("x", reason="no_such_kernelspec"), 404),
        (ElasticError("x", reason="kernel_limit"), 429),
        (ElasticError("x", reason="pending"), 409),
        (errors.BrokerUnavailable("x"), 503),
        (errors.SupervisorLost("x"), 503),
        (errors.LaunchError("x"), 500),
    ],
)
def test_each_error_has_its_status_and_keeps_its_reason(error, code):
    answer = Answer(error)
    assert answer.status_code == code
    assert answer.body == {"message": "x", "reason": error.reason}


def test_a_percent_sign_in_a_message_is_only_a_percent_sign():
    assert Answer(ElasticError("100 % of %s")).body["message"] == "100 % of %s"


class Asking:
    def __init__(self, **arguments):
        self.arguments, self.request = arguments, self
        self.headers = {}

    def get_argument(self, name, default=None):
        return self.arguments.get(name, default)


@pytest.mark.parametrize(
    ("given", "known"), [("right", True), ("wrong", False), ("", False), ("righ", False), ("right ", False), ("ri\udcffght", False)]
)
def test_only_the_whole_token_is_the_token(given, known):
    provider = ElasticIdentityProvider(token="right")
    assert bool(provider.get_token(Asking(token=given))) is known


def test_a_request_that_failed_is_shown_replied_and_idle():
    header = b'{"msg_id":"m1","msg_type":"execute_request"}'
    channels = [channel for channel, _ in failure(header, "shell", "KernelDied", "why")]
    assert channels == ["iopub", "shell", "iopub"]
    assert all(parts[1] == header for _, parts in failure(header, "shell", "KernelDied", "why"))


@pytest.mark.parametrize(("msg_type", "count"), [("inspect_request", 2), ("comm_msg", 1), ("kernel_info_request", 0)])
def test_what_has_no_reply_gets_none_and_kernel_info_is_never_answered_for_a_dead_kernel(msg_type, count):
    assert len(failure(b'{"msg_id":"m1","msg_type":"%b"}' % msg_type.encode(), "shell", "KernelDied", "why")) == count


def test_each_message_has_an_id_of_its_own():
    assert message("status", {})[0] != message("status", {})[0]
    assert status("dead")[0] == "iopub"
