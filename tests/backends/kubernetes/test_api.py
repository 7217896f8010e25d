"""The API client against a server in this process."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import stat
import subprocess
import sys
import traceback
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from gateway.backends.kubernetes.api import CONFIGMAPS, JOBS, NODES, PODS, SECRETS, KubeApi
from gateway.backends.kubernetes.errors import ApiConflict, ApiDenied, ApiExpired, ApiInvalid, ApiMissing, ApiUnavailable
from tests.doubles.api_server import ApiServer, pod, status

Story = Callable[[ApiServer, KubeApi], Awaitable[Any]]


def play(folder: Path, story: Story, **user: Any) -> None:
    async def whole() -> None:
        async with ApiServer() as server:
            api = await KubeApi.connect(kubeconfig=server.kubeconfig(folder, **user))
            try:
                await story(server, api)
            finally:
                await api.close()

    asyncio.run(asyncio.wait_for(whole(), 60))


def test_what_is_created_can_be_read_changed_and_deleted(tmp_path: Path) -> None:
    async def story(server: ApiServer, api: KubeApi) -> None:
        made = await api.create(PODS, "ns", pod("a", app="x"))
        assert made["metadata"]["uid"]
        assert await api.get(PODS, "ns", "a") == made
        merged = await api.patch(PODS, "ns", "a", {"metadata": {"labels": {"app": None, "b": "y"}}})
        assert merged["metadata"]["labels"] == {"b": "y"}
        patched = await api.patch(PODS, "ns", "a", [{"op": "replace", "path": "/metadata/labels/b", "value": "z"}])
        assert patched["metadata"]["labels"] == {"b": "z"}
        assert [content for content, _ in server.bodies[1:]] == ["application/merge-patch+json", "application/json-patch+json"]
        await api.delete(PODS, "ns", "a")
        with pytest.raises(ApiMissing):
            await api.get(PODS, "ns", "a")

    play(tmp_path, story)


def test_what_exists_already_is_a_conflict(tmp_path: Path) -> None:
    async def story(server: ApiServer, api: KubeApi) -> None:
        await api.create(PODS, "ns", pod("a"))
        with pytest.raises(ApiConflict, match="already exists"):
            await api.create(PODS, "ns", pod("a"))

    play(tmp_path, story)


def test_deleting_what_is_gone_is_no_error_and_spares_its_namesake(tmp_path: Path) -> None:
    async def story(server: ApiServer, api: KubeApi) -> None:
        await api.delete(PODS, "ns", "a")
        await api.create(PODS, "ns", pod("a"))
        await api.delete(PODS, "ns", "a", uid="another", grace=3)
        assert await api.get(PODS, "ns", "a")
        options = server.bodies[-1][1]
        assert options["gracePeriodSeconds"] == 3 and options["propagationPolicy"] == "Background"

    play(tmp_path, story)


def test_a_pod_is_never_deleted_without_grace(tmp_path: Path) -> None:
    async def story(server: ApiServer, api: KubeApi) -> None:
        for grace in (0, -1):
            with pytest.raises(ValueError, match="GPU"):
                await api.delete(PODS, "ns", "a", grace=grace)
        await api.delete(JOBS, "ns", "a", grace=0)
        assert server.requests == [("DELETE", "/apis/batch/v1/namespaces/ns/jobs/a")]

    play(tmp_path, story)


def test_a_list_comes_in_pages_and_whole(tmp_path: Path) -> None:
    async def story(server: ApiServer, api: KubeApi) -> None:
        for n in range(1100):
            await server.put(pod(f"p{n:04}", app="x" if n else "y"))
        items, version = await api.list(PODS, "ns", "app=x")
        assert [item["metadata"]["name"] for item in items] == [f"p{n:04}" for n in range(1, 1100)]
        assert version == str(server.version) and len(server.requests) == 3
        everywhere, _ = await api.list(PODS, None)
        assert len(everywhere) == 1100
        assert await api.list(NODES, None) == ([], version)

    play(tmp_path, story)


def test_a_list_whose_snapshot_is_gone_begins_again(tmp_path: Path) -> None:
    async def story(server: ApiServer, api: KubeApi) -> None:
        for n in range(600):
            await server.put(pod(f"p{n:04}"))
        original = server._list

        def compacted(request: Any, plural: str, ns: str) -> Any:
            if "continue" in request.query and not server.oldest:
                server.version += 1
                server.compact()
            return original(request, plural, ns)

        server._list = compacted  # type: ignore[method-assign]
        items, version = await api.list(PODS, "ns")
        assert len(items) == 600 and version == str(server.version) and len(server.requests) == 4

    play(tmp_path, story)


def test_a_watch_tells_what_has_changed_since_and_ends_with_the_stream(tmp_path: Path) -> None:
    async def story(server: ApiServer, api: KubeApi) -> None:
        await server.put(pod("a"))
        _, version = await api.list(PODS, "ns")
        await server.put(pod("b"))
        heard, opened = [], []
        async with aclosing(api.watch(PODS, "ns", "", version, on_open=lambda: opened.append(True))) as stream:
            async for kind, told in stream:
                heard.append((kind, told["metadata"].get("name")))
                if kind == "ADDED":
                    await server.remove("a")
                    await server.bookmark()
                if kind == "BOOKMARK":
                    (await server.stream()).end()
        assert heard == [("ADDED", "b"), ("DELETED", "a"), ("BOOKMARK", None)] and opened == [True]
        query = server.streams[0].query
        assert query["allowWatchBookmarks"] == "true" and 240 <= int(query["timeoutSeconds"]) <= 480

    play(tmp_path, story)


@pytest.mark.parametrize("as_event", [True, False])
def test_a_version_that_is_too_old_is_told_in_both_forms(tmp_path: Path, as_event: bool) -> None:
    async def story(server: ApiServer, api: KubeApi) -> None:
        server.compact()
        server.gone_as_event = as_event
        with pytest.raises(ApiExpired):
            async for _ in api.watch(PODS, "ns", "", "7"):
                pass

    play(tmp_path, story)


def test_a_stream_that_is_cut_or_silent_or_garbled_is_unavailable(tmp_path: Path) -> None:
    async def cut(stream: Any) -> None:
        await stream.raw(b'{"type": "ADDED", "obj')
        stream.cut()

    async def silent(stream: Any) -> None:
        pass

    async def garbled(stream: Any) -> None:
        await stream.raw(b"<html>\n")

    async def story(server: ApiServer, api: KubeApi) -> None:
        api.watch_seconds, api.stall = (0, 0), 0.3
        for end in (cut, silent, garbled):
            doing = asyncio.create_task(anext(api.watch(PODS, "ns", "", "100")))
            stream = await server.stream()
            await end(stream)
            with pytest.raises(ApiUnavailable):
                await doing
            stream.end()

    play(tmp_path, story)


def test_too_many_requests_is_waited_out_within_bounds(tmp_path: Path) -> None:
    async def story(server: ApiServer, api: KubeApi) -> None:
        busy = (429, status(429, "TooManyRequests", "slow down"), {"Retry-After": "0"})
        server.faults = [busy, busy]
        await api.create(PODS, "ns", pod("a"))
        server.faults = [busy] * 100
        api.patience = 0.2
        with pytest.raises(ApiUnavailable, match="slow down"):
            await api.get(PODS, "ns", "a")
        assert len(server.faults) > 90
        server.faults = [(429, status(429, "TooManyRequests", "slow down"), {"Retry-After": "3600"})]
        with pytest.raises(ApiUnavailable):
            await api.get(PODS, "ns", "a")

    play(tmp_path, story)


def test_a_server_that_is_away_is_unavailable_and_then_there_again(tmp_path: Path) -> None:
    async def story(server: ApiServer, api: KubeApi) -> None:
        await api.create(PODS, "ns", pod("a"))
        await server.down()
        with pytest.raises(ApiUnavailable, match=r"127\.0\.0\.1"):
            await api.create(PODS, "ns", pod("b"))
        await server.listen()
        assert await api.get(PODS, "ns", "a")
        await api.close()
        await api.close()
        with pytest.raises(ApiUnavailable, match="closed"):
            await api.get(PODS, "ns", "a")

    play(tmp_path, story)


@pytest.mark.parametrize("name", ["", "../secrets/x", "a/b", "a?b", "a b", ".", "..", "a\n", "ä"])
def test_nothing_but_a_name_becomes_part_of_an_address(tmp_path: Path, name: str) -> None:
    async def story(server: ApiServer, api: KubeApi) -> None:
        asked = (
            (api.get, (PODS, "ns", name)),
            (api.list, (PODS, name)),
            (api.log, (name, "a")),
            (api.delete, (PODS, "ns", name)),
        )
        for method, args in asked:
            with pytest.raises(ValueError):
                await method(*args)
        assert not server.requests

    play(tmp_path, story)


def test_a_log_is_the_end_of_what_was_written(tmp_path: Path) -> None:
    async def story(server: ApiServer, api: KubeApi) -> None:
        server.logs["a"] = "".join(f"line {n}\n" for n in range(100))
        assert await api.log("ns", "a", "kernel", tail_lines=2) == "line 98\nline 99\n"
        assert server.requests[-1][1].endswith("/pods/a/log?tailLines=2&limitBytes=65536&container=kernel")

    play(tmp_path, story)


def test_a_token_from_a_file_is_read_again_once_it_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("the-token\n")

    async def story(server: ApiServer, api: KubeApi) -> None:
        await api.create(CONFIGMAPS, "ns", {"metadata": {"name": "a"}})
        server.token = "the-next"
        token.write_text("the-next\n")
        await asyncio.gather(*(api.get(CONFIGMAPS, "ns", "a") for _ in range(5)))
        server.token = "one-we-have-not"
        with pytest.raises(ApiDenied):
            await api.get(CONFIGMAPS, "ns", "a")

    play(tmp_path, story, tokenFile=str(token))


def test_a_login_command_is_run_again_once_its_token_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("the-token")
    login = tmp_path / "login"
    answer = '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "\'$(cat TOKEN)\'"}}'
    login.write_text(f"#!/bin/sh\necho '{answer}'\n".replace("TOKEN", str(tmp_path / "token")))
    login.chmod(stat.S_IRWXU)

    async def story(server: ApiServer, api: KubeApi) -> None:
        await api.list(PODS, "ns")
        server.token = "the-next"
        (tmp_path / "token").write_text("the-next")
        await api.list(PODS, "ns")
        assert server.tokens_seen == ["Bearer the-token", "Bearer the-token", "Bearer the-next"]

    play(tmp_path, story, exec={"apiVersion": "client.authentication.k8s.io/v1", "command": str(login)})


def test_a_login_command_that_fails_is_named_as_the_cause(tmp_path: Path) -> None:
    async def story(server: ApiServer, api: KubeApi) -> None:
        with pytest.raises(ApiDenied, match="login command"):
            await api.list(PODS, "ns")

    play(tmp_path, story, exec={"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false"})


def test_a_pods_service_account_is_used_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.aio.config import incluster_config

    (tmp_path / "token").write_text("the-token\n")
    (tmp_path / "ca.crt").write_text(ssl.DER_cert_to_PEM_cert(next(iter(ssl.create_default_context().get_ca_certs(binary_form=True)))))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid:3128")

    async def story() -> None:
        api = await KubeApi.connect()
        assert api.server == "https://10.96.0.1"
        assert (await api._access.headers())["Authorization"].split() == ["bearer", "the-token"]
        assert api._access.proxy is None
        await api.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    "user",
    [
        {"token": "hush-hush"},
        {"exec": {"args": ["hush-hush"]}},
        {"auth-provider": {"name": "oidc", "config": {"id-token": "hush-hush"}}},
    ],
    ids=["token", "exec", "oidc"],
)
@pytest.mark.parametrize(
    "broken", [('"user": {', '"user": {'), ('"user": {', '"usr": {'), (', "user": "u"', "")], ids=["not", "key", "user"]
)
def test_no_message_and_no_log_holds_a_credential(
    tmp_path: Path, user: dict[str, Any], broken: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    seen = []

    async def ask(path: str) -> None:
        api = await KubeApi.connect(kubeconfig=path)
        seen.append(repr(api._access))
        try:
            await api.list(PODS, "ns")
        finally:
            await api.close()

    async def story() -> None:
        async with ApiServer() as server:
            path = server.kubeconfig(tmp_path, **user)
            break_file(path, *broken)
            with pytest.raises(ApiDenied) as caught:
                await ask(path)
            seen.append("".join(traceback.format_exception(caught.value)))

    asyncio.run(story())
    assert "hush-hush" not in "".join(seen) + caplog.text


def break_file(path: str, old: str, new: str) -> None:
    text = Path(path).read_text()
    assert old in text
    Path(path).write_text(text.replace(old, new))


def test_no_way_to_a_cluster_is_said_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ApiDenied, match="no kubeconfig"):
        asyncio.run(KubeApi.connect())


def test_a_secret_is_not_quoted_when_it_is_refused(tmp_path: Path) -> None:
    async def story(server: ApiServer, api: KubeApi) -> None:
        server.faults = [(422, status(422, "Invalid", "data: Invalid value: hunter2"), {})]
        with pytest.raises(ApiInvalid) as caught:
            await api.create(SECRETS, "ns", {"metadata": {"name": "s"}, "data": {"key": "hunter2"}})
        assert "hunter2" not in str(caught.value)

    play(tmp_path, story)


def test_who_runs_on_one_machine_never_loads_a_cluster_client() -> None:
    code = (
        "import sys; from traitlets.config import Config; from gateway.backends import make_backend; import gateway.server.app;"
        "make_backend(Config()); print(sorted({'kubernetes', 'aiohttp'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout.strip() == "[]"
