"""The API server's answers as errors."""

from __future__ import annotations

import inspect
import json

import pytest

from gateway.backends.kubernetes import errors
from gateway.backends.kubernetes.errors import (
    ApiConflict,
    ApiDenied,
    ApiError,
    ApiExpired,
    ApiInvalid,
    ApiMissing,
    ApiUnavailable,
    from_status,
)
from gateway.protocol.errors import ElasticError
from tests.doubles.api_server import status

ALL = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, ElasticError)]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (400, ApiInvalid),
        (401, ApiDenied),
        (403, ApiDenied),
        (404, ApiMissing),
        (405, ApiInvalid),
        (409, ApiConflict),
        (410, ApiExpired),
        (422, ApiInvalid),
        (429, ApiUnavailable),
        (500, ApiUnavailable),
        (503, ApiUnavailable),
    ],
)
def test_each_answer_has_its_error_with_the_servers_own_words(code: int, expected: type[ApiError]) -> None:
    error = from_status(code, json.dumps(status(code, "Why", "the server's words")).encode(), "create pods in ns")
    assert type(error) is expected and error.code == code
    assert "the server's words" in str(error) and "create pods in ns" in str(error)


@pytest.mark.parametrize("error", ALL, ids=lambda cls: cls.__name__)
def test_each_error_is_explained_and_has_a_code_of_its_own(error: type[ElasticError]) -> None:
    assert error.__doc__
    assert error.reason not in {other.reason for other in ALL if other is not error}


def test_a_quota_is_told_from_a_missing_right() -> None:
    said = 'pods "a" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: 2, limited: 2'
    error = from_status(403, status(403, "Forbidden", said), "create pods in ns")
    assert isinstance(error, ApiDenied) and error.quota and error.reason == "quota_exceeded" and said in str(error)
    plain = from_status(403, status(403, "Forbidden", 'pods is forbidden: User "u" cannot create resource "pods"'), "create pods in ns")
    assert isinstance(plain, ApiDenied) and not plain.quota


def test_a_resource_version_from_the_future_is_one_to_list_anew_from() -> None:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    assert type(from_status(504, status(504, "Timeout", "Too large resource version: 9", causes=causes), "watch pods")) is ApiExpired
    assert type(from_status(504, status(504, "Timeout", "etcd is slow"), "watch pods")) is ApiUnavailable


def test_what_a_secret_holds_is_not_quoted() -> None:
    causes = [{"reason": "FieldValueInvalid", "field": "data[key]", "message": "Invalid value: hunter2"}]
    body = status(422, "Invalid", 'Secret "s" is invalid: data[key]: Invalid value: hunter2', causes=causes)
    error = from_status(422, body, "create secrets s in ns", secret=True)
    assert "hunter2" not in str(error) and "data[key]" in str(error)


@pytest.mark.parametrize(
    "body", [b"", b"<html>Bad gateway</html>", b"[]", b'"text"', b"\xff\xfe", b'{"details": null}', b'{"details": "x"}']
)
def test_an_answer_that_is_not_the_servers_is_an_error_all_the_same(body: bytes) -> None:
    assert type(from_status(502, body, "list pods")) is ApiUnavailable


def test_who_sent_no_credentials_is_told_so() -> None:
    forbidden = status(403, "Forbidden", 'pods is forbidden: User "system:anonymous" cannot list resource "pods"')
    assert "login command" in str(from_status(403, forbidden, "list pods", anonymous=True))
    assert "login command" not in str(from_status(403, forbidden, "list pods"))
