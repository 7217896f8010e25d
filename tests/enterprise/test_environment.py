"""``EG_*`` variables become settings of ours, or are told; none is passed over."""

from __future__ import annotations

import importlib

import pytest

from gateway.enterprise.environment import INSTEAD, SETTINGS, translate
from gateway.protocol.errors import SettingError


def test_each_variable_is_a_setting_that_there_is() -> None:
    from gateway.server.app import ElasticGatewayApp

    known = {cls.__name__: cls for base in ElasticGatewayApp.classes for cls in base.__mro__ if hasattr(cls, "class_trait_names")}
    known |= {cls.__name__: cls for cls in ElasticGatewayApp.__mro__ if hasattr(cls, "class_trait_names")}
    for ours in SETTINGS.values():
        assert ours.name in known[ours.section].class_trait_names(config=True), ours.setting


def test_what_their_words_say_is_what_ours_mean() -> None:
    settings, told = translate({
        "EG_PORT": "9001", "EG_MAX_KERNELS_PER_USER": "-1", "EG_MAX_KERNELS": "5", "EG_UNAUTHORIZED_USERS": "{'root', 'bob'}",
        "EG_CLIENT_ENVS": "HOME,LANG", "EG_CULL_CONNECTED": "True", "EG_WS_PING_INTERVAL_SECS": "30", "HOME": "/root",
    })  # fmt: skip
    assert settings == {
        "ServerApp": {"port": 9001, "websocket_ping_interval": 30000},
        "ElasticMappingKernelManager": {
            "max_kernels_per_user": None, "max_kernels": 5, "denied_users": ["root", "bob"], "allowed_envs": ["HOME", "LANG"],
            "cull_connected": True,
        },
    }  # fmt: skip
    assert told == []


def test_the_older_names_count_where_the_newer_are_not_there() -> None:
    assert translate({"KG_PORT": "1", "EG_IP": "::1"})[0] == {"ServerApp": {"port": 1, "ip": "::1"}}
    assert translate({"KG_PORT": "1", "EG_PORT": "2"})[0] == {"ServerApp": {"port": 2}}


@pytest.mark.parametrize("name", [*INSTEAD, "EG_RESPONSE_PORT", "EG_YARN_ENDPOINT", "EG_NO_SUCH_THING", "KG_LIST_KERNELS"])
def test_what_is_otherwise_here_is_told_without_its_value(name: str) -> None:
    settings, told = translate({name: "s3cret"})
    assert settings == {}
    assert len(told) == 1
    assert told[0].startswith(f"{name} does nothing here")
    assert "s3cret" not in told[0]


def test_a_value_that_makes_no_sense_is_refused_by_name_and_not_shown() -> None:
    with pytest.raises(SettingError, match=r"EG_PORT must be a whole number, as it is taken for ServerApp\.port") as told:
        translate({"EG_PORT": "s3cret"})
    assert "s3cret" not in str(told.value)


def test_the_readme_has_them_all() -> None:
    readme = (importlib.import_module("pathlib").Path(__file__).parents[2] / "README.md").read_text()
    assert [name for name, ours in SETTINGS.items() if f"`{name}`" not in readme or f"`{ours.setting}`" not in readme] == []
