"""What JupyterLab's page is told of the gateway, without a server."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from gateway.lab import page


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setattr(page, "jupyter_path", lambda *sub: [str(tmp_path.joinpath(*sub))])
    return SimpleNamespace(web_app=SimpleNamespace(settings={"page_config_data": {"token": "kept"}}), log=logging.getLogger("server"))


def test_the_page_learns_that_there_is_a_gateway_beside_all_else(server):
    page.switch_on(server)
    assert server.web_app.settings["page_config_data"] == {"token": "kept", page.OPTION: "true"}


def test_an_installation_without_the_extension_says_so_once_and_how_to_get_it(server, caplog):
    caplog.set_level("INFO")
    page.switch_on(server)
    (said,) = caplog.messages
    assert "Install Node.js" in said


def test_an_installation_with_it_says_nothing(server, caplog, tmp_path):
    caplog.set_level("INFO")
    found = tmp_path / "labextensions" / page.EXTENSION
    found.mkdir(parents=True)
    (found / "package.json").write_text("{}")
    page.switch_on(server)
    assert caplog.messages == []
