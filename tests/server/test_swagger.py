"""The description of the REST interface says what the handlers do, all of it and nothing else."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
import yaml
from openapi_spec_validator import OpenAPIV2SpecValidator
from tornado.web import RequestHandler

from gateway.burst import posted
from gateway.server.embed import SERVICES
from gateway.server.stock import SWAGGER

SPEC = yaml.safe_load(SWAGGER.read_text())
STOCK = {("/api/me", "patch")}  # jupyter_server's own
VALUES = {"kernel_id": "a-b-c-d-e", "session_id": "a-b-c-d-e", "burst": "x", "kernelspec": "x", "path": "x", "node": "x", "rank": "0"}
VALUES |= {"action": "restart"}
VERBS = ("get", "post", "patch", "put", "delete")


def described() -> set[tuple[str, str]]:
    return {(path, verb) for path, item in SPEC["paths"].items() for verb in item if verb in VERBS} - STOCK


def served() -> list[tuple[str, type[RequestHandler]]]:
    return [(route[0], route[1]) for service in SERVICES for route in import_module(service).default_handlers]


def verbs(handler: type[RequestHandler]) -> set[str]:
    return {verb for verb in VERBS if getattr(handler, verb) is not getattr(RequestHandler, verb)}


def test_it_is_valid_swagger():
    OpenAPIV2SpecValidator(SPEC).validate()


@pytest.mark.parametrize(("path", "verb"), sorted(described()))
def test_whatever_is_described_is_served(path, verb):
    address = path.format(**VALUES)
    assert [handler for pattern, handler in served() if re.fullmatch(pattern, address) and verb in verbs(handler)]


@pytest.mark.parametrize(("pattern", "handler"), served(), ids=lambda value: value if isinstance(value, str) else value.__name__)
def test_whatever_is_served_is_described(pattern, handler):
    found = {verb for path, verb in described() if re.fullmatch(pattern, path.format(**VALUES))}
    assert found == verbs(handler) - {verb for path, verb in STOCK if path == pattern}


def test_a_burst_is_described_with_every_field_that_it_may_have():
    assert set(SPEC["definitions"]["BurstRequest"]["properties"]) == set(posted.FIELDS)
