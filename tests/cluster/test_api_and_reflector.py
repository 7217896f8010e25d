"""The client and the watch cache against a real API server: what the double in the other tests is taken from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from gateway.backends.kubernetes import api as api_module
from gateway.backends.kubernetes.api import CONFIGMAPS, JOBS, LEASES, NODES, PODS, SECRETS, Kind, KubeApi
from gateway.backends.kubernetes.errors import ApiConflict, ApiDenied, ApiExpired, ApiInvalid, ApiMissing, ApiUnavailable
from gateway.backends.kubernetes.reflector import Reflector

from .images import KERNEL

QUOTAS = Kind("v1", "resourcequotas")
Story = Callable[[KubeApi], Awaitable[Any]]


def play(kubeconfig: Path, story: Story, seconds: float = 100) -> None:
    async def whole() -> None:
        api = await KubeApi.connect(kubeconfig=str(kubeconfig))
        try:
            await story(api)
        finally:
            await api.close()

    asyncio.run(asyncio.wait_for(whole(), seconds))


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"app": "test"}}, "data": data}


def pod(name: str, *command: str) -> dict[str, Any]:
    container = {"name": "main", "image": KERNEL, "imagePullPolicy": "Never", "command": list(command)}
    return {"metadata": {"name": name, "labels": {"app": "test"}}, "spec": {"containers": [container], "restartPolicy": "Never"}}


def kubeconfig_of(folder: Path, original: Path, token: str) -> Path:
    config = json.loads(original.read_text())
    config["users"][0]["user"] = {"token": token}
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


async def first(api: KubeApi, namespace: str, version: str) -> None:
    async with aclosing(api.watch(CONFIGMAPS, namespace, "", version)) as stream:
        await anext(stream)


def into(heard: list[tuple[str, str]]) -> Callable[..., None]:
    return lambda kind, told, _: heard.append((kind, told["metadata"]["name"]))


def test_objects_are_created_changed_and_deleted(cluster, namespace):
    async def story(api: KubeApi) -> None:
        made = await api.create(CONFIGMAPS, namespace, config_map("a", x="1"))
        assert (await api.get(CONFIGMAPS, namespace, "a"))["metadata"]["uid"] == made["metadata"]["uid"]
        with pytest.raises(ApiConflict):
            await api.create(CONFIGMAPS, namespace, config_map("a"))
        assert (await api.patch(CONFIGMAPS, namespace, "a", {"data": {"x": None, "y": "2"}}))["data"] == {"y": "2"}
        version = {"op": "test", "path": "/metadata/resourceVersion", "value": made["metadata"]["resourceVersion"]}
        with pytest.raises(ApiInvalid):
            await api.patch(CONFIGMAPS, namespace, "a", [version, {"op": "replace", "path": "/data/y", "value": "3"}])
        changed = await api.patch(CONFIGMAPS, namespace, "a", [{"op": "replace", "path": "/data/y", "value": "3"}])
        assert changed["data"] == {"y": "3"}
        stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"y": "4"}}
        with pytest.raises(ApiConflict):
            await api.patch(CONFIGMAPS, namespace, "a", stale)
        await api.delete(CONFIGMAPS, namespace, "a", uid="00000000-0000-0000-0000-000000000000")
        assert await api.get(CONFIGMAPS, namespace, "a"), "its namesake is spared"
        await api.delete(CONFIGMAPS, namespace, "a", uid=made["metadata"]["uid"])
        await api.delete(CONFIGMAPS, namespace, "a")
        with pytest.raises(ApiMissing):
            await api.get(CONFIGMAPS, namespace, "a")

    play(cluster.kubeconfig, story)


def test_every_kind_that_is_named_exists(cluster, namespace):
    async def story(api: KubeApi) -> None:
        for kind in (PODS, SECRETS, CONFIGMAPS, LEASES, JOBS, api_module.EVENTS):
            _, version = await api.list(kind, namespace)
            assert int(version)
        nodes, _ = await api.list(NODES, None)
        assert nodes

    play(cluster.kubeconfig, story)


def test_what_a_secret_holds_is_not_in_the_error_that_refuses_it(cluster, namespace):
    async def story(api: KubeApi) -> None:
        for data in ({"a/b": "aHVudGVyMg=="}, {"a": "hunter2!"}, {"a": {"hunter2": "hunter2"}}):
            with pytest.raises(ApiInvalid) as caught:
                await api.create(SECRETS, namespace, {"metadata": {"name": "s"}, "data": data})
            assert "hunter2" not in str(caught.value) and "aHVudGVyMg" not in str(caught.value)

    play(cluster.kubeconfig, story)


def test_a_quota_is_told_from_a_missing_right_and_from_a_wrong_token(cluster, namespace, tmp_path):
    async def fill(api: KubeApi) -> None:
        for n in range(1000):  # the controller counts before it holds
            await api.create(CONFIGMAPS, namespace, config_map(f"a{n}"))

    async def story(api: KubeApi) -> None:
        await api.create(QUOTAS, namespace, {"metadata": {"name": "none"}, "spec": {"hard": {"configmaps": "1"}}})
        with pytest.raises(ApiDenied) as caught:
            await fill(api)
        assert caught.value.quota

    async def without_rights(api: KubeApi) -> None:
        with pytest.raises(ApiDenied, match="cannot list") as caught:
            await api.list(PODS, namespace)
        assert not caught.value.quota and caught.value.code == 403

    async def unknown(api: KubeApi) -> None:
        with pytest.raises(ApiDenied) as caught:
            await api.list(PODS, namespace)
        assert caught.value.code == 401 and "no-such-token" not in str(caught.value)

    play(cluster.kubeconfig, story)
    token = cluster.kubectl("create", "token", "default", "-n", namespace).strip()
    play(kubeconfig_of(tmp_path, cluster.kubeconfig, token), without_rights)
    play(kubeconfig_of(tmp_path, cluster.kubeconfig, "no-such-token"), unknown)


def test_a_list_comes_in_pages(cluster, namespace, monkeypatch):
    monkeypatch.setattr(api_module, "PAGE", 5)

    async def story(api: KubeApi) -> None:
        await asyncio.gather(*(api.create(CONFIGMAPS, namespace, config_map(f"a{n:02}")) for n in range(23)))
        items, version = await api.list(CONFIGMAPS, namespace, "app=test")
        assert [item["metadata"]["name"] for item in items] == [f"a{n:02}" for n in range(23)] and int(version)

    play(cluster.kubeconfig, story)


def test_a_quiet_watch_gets_bookmarks(cluster, namespace):
    async def story(api: KubeApi) -> None:
        api.watch_seconds = (9, 9)  # a bookmark comes two seconds before its end
        _, version = await api.list(CONFIGMAPS, namespace, "app=test")
        await api.create(SECRETS, namespace, {"metadata": {"name": "foreign"}})
        async with aclosing(api.watch(CONFIGMAPS, namespace, "app=test", version)) as stream:
            heard = [(kind, int(told["metadata"]["resourceVersion"])) async for kind, told in stream]
        assert {kind for kind, _ in heard} == {"BOOKMARK"}
        assert heard[-1][1] > int(version), "though nothing of its kind has changed"

    play(cluster.kubeconfig, story)


def test_the_cache_follows_through_many_watches_and_loses_and_repeats_nothing(cluster, namespace):
    async def story(api: KubeApi) -> None:
        heard: list[tuple[str, str]] = []
        api.watch_seconds = (1, 1)
        reflector = Reflector(api, CONFIGMAPS, namespace, "app=test", on_event=into(heard))
        reflector.start()
        await reflector.synced.wait()
        for n in range(40):
            await api.create(CONFIGMAPS, namespace, config_map(f"a{n}"))
            await api.delete(CONFIGMAPS, namespace, f"a{n}")
            await asyncio.sleep(0.1)
        await reflector.wait_for(lambda cache: ("DELETED", "a39") in heard)
        assert heard == [(kind, f"a{n}") for n in range(40) for kind in ("ADDED", "DELETED")]
        assert reflector.cache == {}
        await reflector.stop()

    play(cluster.kubeconfig, story)


def test_the_cache_is_right_again_after_the_api_server_was_away(broken_cluster, namespace):
    async def story(api: KubeApi) -> None:
        heard: list[tuple[str, str]] = []
        reflector = Reflector(api, CONFIGMAPS, namespace, "app=test", on_event=into(heard))
        await api.create(CONFIGMAPS, namespace, config_map("a"))
        reflector.start()
        await reflector.synced.wait()
        for name, lost in (("b", False), ("c", True)):
            await asyncio.to_thread(broken_cluster.stop_api)
            with pytest.raises(ApiUnavailable):
                await api.get(CONFIGMAPS, namespace, "a")
            while reflector.connected:
                await asyncio.sleep(0.01)
            assert reflector.down_since is not None and ("a" in {name for _, name in reflector.cache})
            if lost:  # the API server that comes back knows no change before its start
                reflector._version = "1"
            await asyncio.to_thread(broken_cluster.start_api)
            await api.create(CONFIGMAPS, namespace, config_map(name))
            await reflector.wait_for(lambda cache, name=name: (namespace, name) in cache)
            assert reflector.connected and reflector.down_since is None
        assert heard == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
        await reflector.stop()
        with pytest.raises(ApiExpired):
            await first(api, namespace, "1")

    play(broken_cluster.kubeconfig, story)


def test_a_pods_whole_life_is_seen_and_its_log_read(cluster, namespace):
    async def story(api: KubeApi) -> None:
        key = (namespace, "a")
        reflector = Reflector(api, PODS, namespace, "app=test")
        reflector.start()
        code = "import time; [print('line', n, flush=True) for n in range(100)]; time.sleep(600)"
        made = await api.create(PODS, namespace, pod("a", "python3", "-c", code))
        await reflector.wait_for(lambda cache: key in cache and cache[key]["status"].get("phase") == "Running", key=key)
        while (words := await api.log(namespace, "a", "main", tail_lines=2)) != "line 98\nline 99\n":
            assert len(words.splitlines()) <= 2
            await asyncio.sleep(0.1)
        await api.delete(PODS, namespace, "a", uid=made["metadata"]["uid"], grace=1)
        await reflector.wait_for(lambda cache: key not in cache, key=key)
        await reflector.stop()

    play(cluster.kubeconfig, story)
