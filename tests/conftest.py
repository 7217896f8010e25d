"""What every test stands on: Jupyter's folders are a scratch folder, so that no test sees or touches the user's own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

from tests import budget
from tests.cluster.fixtures import (  # noqa: F401 - fixtures and hooks for all tests
    _session_cluster,
    broken_cluster,
    cluster,
    namespace,
    pytest_collection_modifyitems,
    pytest_runtest_call,
    pytest_runtest_setup,
)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(budget)


@pytest.fixture(scope="session", autouse=True)
def scratch_jupyter() -> Iterator[str]:
    """The scratch folder of this run; its path is short because socket paths are limited to 107 bytes."""
    root = tempfile.mkdtemp(prefix="eg-", dir="/tmp")
    patch = pytest.MonkeyPatch()
    for name in list(os.environ):
        if name.startswith(("JUPYTER", "IPYTHON", "KERNEL_")):
            patch.delenv(name)
    for name, folder in {
        "JUPYTER_RUNTIME_DIR": "run",
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTERLAB_SETTINGS_DIR": "lab",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
        "MPLCONFIGDIR": "mpl",
    }.items():
        path = os.path.join(root, folder)
        os.mkdir(path, 0o700)
        patch.setenv(name, path)
    yield root
    patch.undo()
    shutil.rmtree(root, ignore_errors=True)
