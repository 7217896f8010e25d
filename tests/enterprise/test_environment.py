"""``EG_*`` variables become settings of ours, or are told; none is passed over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from traitlets.config import Config

from gateway.enterprise.environment import INSTEAD, SETTINGS, translate
from gateway.protocol.errors import SettingError
from gateway.settings.backends import KubernetesBackend, LocalBackend
from tests.enterprise.venv import enterprise_python, enterprise_source

NO_VARIABLES = {"EG_COMM", "EG_HOST_IP", "EG_PUBLIC_KEY"}  # a channel's name, a reader's own, what a container of theirs is given


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
    both = {"EG_ENV_WHITELIST": "OLD", "EG_CLIENT_ENVS": "NEW"}
    assert translate(both)[0] == {"ElasticMappingKernelManager": {"allowed_envs": ["NEW"]}}


def test_what_kernels_inherit_is_on_top_of_what_they_have_anyway_and_it_is_said_where_that_counts() -> None:
    settings, told = translate({"EG_INHERITED_ENVS": "SPARK_HOME,PATH"})
    kept = LocalBackend(config=Config(settings)).inherited_env
    assert {"PATH", "HOME", "SPARK_HOME"} <= set(kept)
    assert len(told) == 1 and "those in pods have" in told[0]


def test_a_launch_timeout_of_theirs_holds_wherever_kernels_run() -> None:
    config = Config(translate({"EG_KERNEL_LAUNCH_TIMEOUT": "77"})[0])
    assert [kind(config=config).launch_timeout for kind in (LocalBackend, KubernetesBackend)] == [77, 77]


def test_their_image_names_no_kernel_where_all_are_allowed() -> None:
    assert translate({"EG_ALLOWED_KERNELS": "null"})[0] == {"KernelSpecManager": {"allowed_kernelspecs": set()}}
    named = translate({"EG_ALLOWED_KERNELS": "'r_docker','python_docker'"})[0]
    assert named == {"KernelSpecManager": {"allowed_kernelspecs": {"r_docker", "python_docker"}}}


def variables(root: Path) -> set[str]:
    """Every name like one of their variables in a folder's sources and documents."""
    texts = (path.read_text(errors="ignore") for path in root.rglob("*") if path.suffix in {".py", ".md", ".sh", ".yml", ".yaml", ".j2"})
    return {name for text in texts for name in re.findall(r"\b[EK]G_[A-Z0-9_]*[A-Z0-9]\b", text)} - NO_VARIABLES


@pytest.mark.timeout(600)  # an environment for Enterprise Gateway may have to be made first
@pytest.mark.parametrize("where", ["as it is installed", "its documents, images and charts"])
def test_every_variable_that_a_real_enterprise_gateway_speaks_of_is_a_setting_or_told_with_what_to_use_instead(where: str) -> None:
    if where == "as it is installed":
        theirs = variables(next(enterprise_python().parents[1].glob("lib/*/site-packages/enterprise_gateway")))
    else:
        theirs = variables(enterprise_source())
    assert len(theirs) > 80
    unknown = [line for name in theirs for line in told_of(name) if "none that Enterprise Gateway" in line]
    assert unknown == []


def told_of(name: str) -> list[str]:
    """What is said of a variable whose value says nothing."""
    if f"EG_{name[3:]}" in SETTINGS:
        return []
    return translate({name: ""})[1] or [f"{name}: none that Enterprise Gateway has, and nothing is said"]


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
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert [name for name, ours in SETTINGS.items() if f"`{name}`" not in readme or f"`{ours.setting}`" not in readme] == []
