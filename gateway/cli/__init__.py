"""``jupyter elastic-gateway``: alone the server, with a word one of its subcommands, one module each.

A subcommand's module has ``arguments(parser)`` and ``run(args) -> exit status``, or ``start(argv)`` where it is a Jupyter
application. Only the wanted one is imported. Nothing here may decide anything about leases, or take a secret from the command line.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys

from ..protocol.errors import ElasticError

COMMANDS = {
    "demo": "a gateway, a JupyterLab and an example notebook, all here and gone afterwards",
    "status": "who leases here, which GPUs, and how many hold and wait",
    "leases": "every kernel, what it holds and since when",
    "queue": "who waits for a GPU",
    "release": "take the GPU from an idle kernel",
    "hold": "leave a kernel its GPU for a while although it is idle",
    "drain": "take a node out of service: its GPUs are given back and nothing new begins there",
    "policy": "show the lease policy, or change it while the gateway runs",
    "token": "make a token for a user, and its line for the users file",
    "usage": "GPU time held, executed and saved, by user, kernel, flavor, day or cell",
    "kernelspecs": "the kernels that the gateway offers, with their GPUs and profile",
    "doctor": "what this machine can do for a kernel's GPU state, tried where there is a GPU",
    "replay": "what other lease rules would have cost and saved, played on a recorded or synthetic workload",
    "shutdown": "stop the gateway; with --kernels its kernels too, also those of one that has gone",
    "broker": "lease GPUs to processes that use no gateway (starts by itself when needed)",
}
BAD_USAGE = 2


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 done, 1 failed with a message, 2 wrong usage."""
    argv = sys.argv[1:] if argv is None else argv
    word = argv[0] if argv else ""
    if word in ("-h", "--help"):
        print(overview())
        return 0
    if not word or word.startswith("-"):
        return serve(argv)
    if word not in COMMANDS:
        print(f"jupyter elastic-gateway has no subcommand {word!r}. It has: {', '.join(COMMANDS)}.", file=sys.stderr)
        return BAD_USAGE
    return command(word, argv[1:])


def serve(argv: list[str]) -> int:
    """The server, until it is stopped."""
    # jsonschema builds a grammar as it is imported, which is two thirds of what our start costs, for formats that no Jupyter event has
    # (`iri`); it goes on without where there is no such module.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    from ..server.app import ElasticGatewayApp

    ElasticGatewayApp.launch_instance(argv)
    return 0


def command(name: str, argv: list[str]) -> int:
    module = importlib.import_module(f".{name}", __name__)
    if hasattr(module, "start"):
        return module.start(argv)
    parser = argparse.ArgumentParser(prog=f"jupyter elastic-gateway {name}", description=module.__doc__ and module.__doc__.split("\n\n")[0])
    module.arguments(parser)
    args = parser.parse_args(argv)
    try:
        status: int = module.run(args)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # as with `| head`: nobody reads the rest, nor what Python would flush at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except ElasticError as exc:
        print(json.dumps(exc.to_json()) if getattr(args, "json", False) else f"jupyter elastic-gateway {name}: {exc}", file=sys.stderr)
        return BAD_USAGE if exc.reason == "bad_usage" else 1
    except KeyboardInterrupt:
        return 130


def overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "jupyter elastic-gateway [--Class.setting=value ...]   run the gateway",
            "jupyter elastic-gateway SUBCOMMAND [--help]",
            "",
            "Subcommands:",
            *lines,
            "",
            "jupyter elastic-gateway --help-all lists every setting of the gateway.",
        ]
    )
