"""The application as it is before it runs: what it offers and how it documents itself."""

from __future__ import annotations

import asyncio

import pytest
from jupyter_server.services.sessions.sessionmanager import SessionManager

from gateway.server.app import OURS, ElasticGatewayApp
from gateway.server.contents import NoContents
from gateway.server.kernels import ElasticMappingKernelManager
from gateway.server.sessions import ElasticSessionManager


@pytest.fixture(scope="module")
def help_text():
    return "\n".join(ElasticGatewayApp().emit_help(classes=True))


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.__name__)
def test_every_setting_is_in_the_help(help_text, cls):
    for name in cls.class_own_traits(config=True):
        assert f"--{cls.__name__}.{name}=" in help_text


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.__name__)
def test_every_setting_of_ours_says_what_it_does(cls):
    for name, trait in cls.class_own_traits(config=True).items():
        assert trait.help, f"{cls.__name__}.{name}"


def test_the_examples_in_the_help_name_settings_that_exist():
    settings = {f"{cls.__name__}.{name}" for cls in OURS for name in cls.class_trait_names(config=True)}
    for line in ElasticGatewayApp.examples.split():
        if line.startswith("--"):
            assert line.strip("-").partition("=")[0] in settings


def test_it_serves_kernels_and_no_files():
    app = ElasticGatewayApp()
    assert issubclass(app.kernel_manager_class, ElasticMappingKernelManager)
    assert app.contents_manager_class is NoContents
    assert "contents" not in app.default_services
    assert app.port_retries == 0
    assert not app.open_browser


def test_settings_of_a_hub_may_be_typed_and_a_misspelled_one_stops_the_start(capsys, tmp_path, monkeypatch):
    hub = "--ElasticIdentityProvider.hub=True"
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def started(*typed: str) -> None:
        app = ElasticGatewayApp()
        app.parse_command_line([hub, *typed])
        app.load_config_file()
        app.init_logging()

    started("--HubAuth.api_url=http://hub:8081/hub/api", "--HubAuth.cache_max_age=60")
    with pytest.raises(SystemExit):
        started("--HubAuth.access_scope=['x']")
    assert "Did you mean HubAuth.access_scopes?" in capsys.readouterr().err


def test_it_looks_for_idle_kernels_often_enough_for_a_short_timeout():
    assert ElasticMappingKernelManager(cull_idle_timeout=20).cull_interval == 5
    assert ElasticMappingKernelManager(cull_idle_timeout=7200, cull_warning=60).cull_interval == 30
    assert ElasticMappingKernelManager(cull_idle_timeout=7200, cull_warning=0).cull_interval == 300
    assert ElasticMappingKernelManager(cull_idle_timeout=7200).cull_interval == 150
    assert ElasticMappingKernelManager(cull_idle_timeout=20, cull_interval=11).cull_interval == 11


def test_a_session_never_gives_its_kernel_the_gateways_environment(monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_GATEWAY", "hush")
    stock = SessionManager.get_kernel_env(ElasticSessionManager(), "a.ipynb")
    ours = ElasticSessionManager().get_kernel_env("a.ipynb")
    assert "SECRET_OF_THE_GATEWAY" in stock, "else this test proves nothing"
    assert ours == {"JPY_SESSION_NAME": "a.ipynb"}


def test_a_gateway_has_no_contents():
    contents = NoContents()
    assert contents.get_kernel_path("a/b.ipynb") == "a"
    assert contents.get_kernel_path("") == ""
    assert not asyncio.run(contents.file_exists("a"))
    assert contents.get_extra_handlers() == []
