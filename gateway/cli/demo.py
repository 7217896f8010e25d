"""A gateway, a JupyterLab connected to it by --gateway-url, and an example notebook; Ctrl-C ends everything.

This process only waits. The servers belong to ``demo_servers``, which ends them when this process ends, however it ends.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
import subprocess
import sys

from ..protocol.errors import ElasticError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # each ends the demo


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--simulated-gpus", type=int, metavar="N", help="simulate N GPUs (default: 2 where the driver finds none)")
    parser.add_argument("--folder", help="keep the notebook in this folder (default: a temporary one, deleted at the end)")


def run(args: argparse.Namespace) -> int:
    if importlib.util.find_spec("jupyterlab") is None:
        raise ElasticError("The demo needs JupyterLab: pip install 'jupyter-elastic-gateway[demo]'", reason="no_jupyterlab")
    print("A gateway, a JupyterLab and an example notebook: this takes some seconds.", flush=True)
    wish = json.dumps({"simulated_gpus": args.simulated_gpus, "folder": args.folder})
    servers = subprocess.Popen(
        [sys.executable, "-P", "-m", "gateway.cli.demo_servers", wish], stdin=subprocess.PIPE, start_new_session=True
    )
    assert servers.stdin is not None
    for signum in SIGNALS:
        signal.signal(signum, _stop)
    try:
        return servers.wait()
    except _Stop:
        print("\nEnding the demo ...", flush=True)
        servers.stdin.close()
        return servers.wait()


class _Stop(Exception):
    """Somebody wants the demo to end."""


def _stop(signum: int, frame: object) -> None:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)  # a second one, however soon, is no news
    raise _Stop
