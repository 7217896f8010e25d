"""What the chart's values, its schema and the README say of one thing is the same as what the gateway has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gateway import __version__
from gateway.backends.kubernetes import manifests, names
from gateway.backends.kubernetes.profiles import Profile
from gateway.settings import Leases

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts/elastic-gateway"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
PROFILE_FIELDS = [each.name for each in fields(Profile) if each.name != "name"]


def test_the_charts_version_is_the_gateways():
    text = (CHART / "Chart.yaml").read_text()
    assert re.search(rf"^version: {re.escape(__version__)}$", text, re.MULTILINE)
    assert re.search(rf'^appVersion: "{re.escape(__version__)}"', text, re.MULTILINE)


@pytest.mark.parametrize("name", PROFILE_FIELDS)
def test_each_field_of_a_profile_stands_in_the_readmes_table(name):
    assert re.search(rf"^\| `{name}` \|", (ROOT / "README.md").read_text(), re.MULTILINE)


def test_the_schema_has_the_gateways_profile_fields_and_lease_settings():
    assert set(SCHEMA["properties"]["profiles"]["additionalProperties"]["properties"]) == set(PROFILE_FIELDS)
    assert set(SCHEMA["properties"]["leases"]["properties"]) == set(Leases.class_own_traits(config=True))


def objects(schema: Any, where: str = "values") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        if isinstance(schema.get("type"), str | list):
            yield where, schema
        for key, value in schema.items():
            yield from objects(value, f"{where}.{key}")


def test_everything_in_the_schema_is_explained():
    assert [
        where for where, each in objects(SCHEMA) if "description" not in each and not where.endswith(("items", "additionalProperties"))
    ] == []


def test_nothing_in_the_schema_that_names_its_fields_lets_others_in():
    assert [where for where, each in objects(SCHEMA) if "properties" in each and each.get("additionalProperties") is not False] == []


def test_every_value_is_explained_and_every_explained_value_is_there():
    top = re.findall(r"^(\w+):", (CHART / "values.yaml").read_text(), re.MULTILINE)
    assert set(top) == set(SCHEMA["properties"]) - {"global"}


def test_the_network_policies_name_the_ports_and_labels_that_pods_have():
    text = (CHART / "templates/networkpolicy.yaml").read_text()
    ports = sorted([manifests.LINK_PORT, *manifests.PORTS.values()])
    assert ports == list(range(ports[0], ports[-1] + 1))
    assert f"{{port: {ports[0]}, endPort: {ports[-1]}}}" in text
    assert f"{names.ROLE}: {names.ROLE_KERNEL}" in text
    assert f"{names.ROLE}: {names.ROLE_SLOT}" in text
    helpers = (CHART / "templates/_helpers.tpl").read_text()
    assert f"{names.MANAGED_BY}: {names.MANAGER}\n{names.GATEWAY}: " in helpers
