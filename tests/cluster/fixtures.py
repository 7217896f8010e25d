"""Fixtures for every test that needs a Kubernetes; a test that uses one is marked ``cluster`` by itself.

``cluster`` is this run's cluster, ``namespace`` a namespace of the test's own on it, ``broken_cluster`` the cluster for a test that stops
nodes or the API server: no other test uses it meanwhile, and it is whole again afterwards.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import pytest

from .available import NoCluster, a_cluster
from .cluster import Cluster, NoNodeControl, OwnCluster

SECONDS = 300  # for a cluster test, instead of the usual limit
FIXTURES = {"cluster", "namespace", "broken_cluster"}
CONTROLLERS = "controllers"  # a mark


def unavailable(reason: str) -> None:
    """Skips the test; where ``CLUSTER_TESTS=required`` (continuous integration) fails it instead."""
    if os.environ.get("CLUSTER_TESTS") == "required":
        pytest.fail(f"cluster tests are required here: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def _session_cluster() -> Iterator[Cluster]:
    try:
        with a_cluster() as found:
            yield found
    except NoCluster as error:
        unavailable(str(error))


@pytest.fixture
def cluster(_session_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster of this run."""
    with _session_cluster.turn(alone="broken_cluster" in request.fixturenames):
        yield _session_cluster


@pytest.fixture
def broken_cluster(cluster: Cluster) -> Iterator[OwnCluster]:
    """A cluster of our own, for this test alone, which may stop what it likes."""
    if not isinstance(cluster, OwnCluster):
        unavailable("this test stops nodes or the API server: unset KUBECONFIG and run as root, so that the cluster is our own")
        return
    yield cluster
    cluster.repair()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """The name of a namespace that ends with the test, and what is in it."""
    name = f"test-{secrets.token_hex(4)}"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("wait", "serviceaccount/default", "-n", name, "--for=create", "--timeout=30s")
    yield name
    cluster.kubectl("delete", "pods", "--all", "-n", name, "--grace-period=0", "--force", "--wait=false")
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what uses a cluster, and allows for the time until one is up and other runs have had their turn; leaves out what needs
    controllers that take minutes to build, unless ``-m`` speaks of them."""
    if CONTROLLERS not in (config.option.markexpr or ""):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker(CONTROLLERS)])
        items[:] = [item for item in items if not item.get_closest_marker(CONTROLLERS)]
    for item in items:
        if FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.cluster)
        if item.get_closest_marker("cluster") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SECONDS))


def _skips_what_needs_nodes() -> Iterator[None]:
    """A foreign cluster's nodes aren't ours: a test that asks for them is skipped with the reason."""
    try:
        return (yield)
    except NoNodeControl as error:
        unavailable(f"{error}; unset KUBECONFIG and run as root, so that the cluster is our own")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    return (yield from _skips_what_needs_nodes())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    return (yield from _skips_what_needs_nodes())
