"""What a user has installed in a kernel's pod, and the pods of its ranks: told, and installed there where the cell says so."""

from __future__ import annotations

import inspect

from tests import wheels
from tests.cluster.rig import PodGateway

# An index in the kernel's own pod, as the cluster of the tests reaches no other.
INSTALL = f"""
{inspect.getsource(wheels)}
import os, socket, subprocess, sys
wheel(Path("/tmp/wheels"), "tiny", "1.5")
server = subprocess.Popen([sys.executable, "-m", "http.server", "8123", "-d", "/tmp/wheels"], stderr=subprocess.DEVNULL)
host = socket.gethostbyname(socket.gethostname())
os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=f"http://{{host}}:8123/", PIP_TRUSTED_HOST=host)
out = subprocess.run(
    [sys.executable, "-m", "pip", "install", "--user", "--break-system-packages", "tiny"], capture_output=True, text=True
)
import importlib, site
sys.path.append(site.getusersitepackages())
importlib.invalidate_caches()
import tiny
print(tiny.VERSION)
"""


def test_what_was_installed_in_a_kernels_pod_is_told_and_installed_in_its_ranks(pods: PodGateway) -> None:
    with pods.kernel("default") as kernel:
        browser = kernel.open()
        made = browser.run(INSTALL.replace("from __future__ import annotations\n", ""))
        assert made.out == "1.5\n", (made, browser.run("print(out)").out)
        told = browser.run("%%distributed -w 2 -e none\nprint('ran')")
        assert told.out.count("ran") == 2 and "tiny 1.5" in str(browser.messages), browser.messages
        assert "--pip installed" in browser.run("%%distributed -w 2 -e none\nprint(tiny.VERSION)").evalue
        has = browser.run("%%distributed -w 2 -e none --pip installed\nprint(tiny.VERSION)", 120)
        assert (has.status, sorted(has.out.splitlines())) == ("ok", ["[0] 1.5", "[1] 1.5"]), has
