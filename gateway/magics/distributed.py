"""``%%distributed``: this cell runs on many workers, and what it assigns comes home. ``%burst``: what becomes of such cells.

The cell blocks like any other, and the stop button ends its workers. This module must never run the cell here, and never leave
workers behind that nobody knows of.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from typing import Any, Optional

from ..protocol import burst
from ..protocol.errors import BadRequest, ElasticError
from .burst.calls import AWAY, call, start
from .burst.depot import depot
from .burst.following import Ended, Following
from .burst.home import Home
from .burst.options import Options, Usage, read
from .burst.outlet import Outlet
from .burst.raised import misspelt
from .burst.request import request

GPU_WORDS = re.compile(r"\b(cuda|device|nccl)\b", re.IGNORECASE)  # a cell that has one may use a GPU
COMMIT = re.compile(r"\.\s*commit\s*\(")  # of an elastic.State
STOPPING_SECONDS = 5.0  # for workers to end after the stop button; they have less


class Distributed:
    """The magics of one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell, self._home = shell, Home(shell)

    def distributed(self, line: str, cell: str) -> None:
        """Run this cell on many workers: ``%%distributed -w 4``.

        Each worker is a process or, where kernels are pods, a pod. It is a rank, with RANK,
        WORLD_SIZE, LOCAL_RANK and device. What the cell reads is taken along, what rank 0 assigns
        or changes comes back, what it prints is shown here, an error on any rank is raised here.

        Workers
          -w N             how many (2)
          -w 2:8           as many as there are idle GPUs for, from one `state.commit()` to the
                           next: `from gateway import elastic`, and `elastic.State?` explains it
          -e ENGINE        torch   torchrun; the default where torch is installed
                           none    plain processes; the default elsewhere
                           mpi     mpirun
                           dask    the cell says `Client()`
                           ray     the cell says `ray.init()`
                           tf-ps   TensorFlow's parameter servers: the cell is the chief, and
                                   says `TFConfigClusterResolver()`
          -g N             GPUs for each, leased all at once; 1 (with --procs P: P) if the cell
                           uses them and there are as many, else 0
          --procs P        P processes in each (1), each a rank: -w 2 -g 8 --procs 8 is two
                           workers, with eight GPUs each, and 16 ranks; LOCAL_RANK is from 0 to
                           P - 1, and the ranks of a worker see all of its GPUs. With -e torch,
                           none or mpi
          --ps N           with -e tf-ps: how many parameter servers (1)
          --role NAME=N    N processes or pods more that run the cell too, with ROLE 'NAME'
                           where workers have 'worker', and RANK and WORLD_SIZE of their own;
                           ADDRESSES[ROLE][RANK] is a host and port for each. They are
                           interrupted once the workers are through. NAME=N,gpus=1 leases
                           each a GPU
          --pip P          install P for the workers, as pip names it, and again for more;
                           --pip installed: what was installed in this kernel's pod, which
                           workers in pods don't have by themselves
          --no-init        with -e torch: leave torch.distributed's process group to the cell
          --compress fp16  with -e torch: send gradients in fewer bits; or bf16, or powersgd:4,
                           far fewer and less exact

        What goes along, comes back and is shown
          --in a,b         take these along too
          --no-in          take nothing along
          --out a,b        bring exactly these back
          --ranks 0,1      bring back from these ranks, or all: each name a list by rank, but
                           what is imported or defined
          --show 0,1       show what these ranks print, or all (the default with -e none)
          --dry-run        only show what would be taken along, and on Kubernetes the objects
                           that would be made

        How long it goes on
          --detach         return at once, and let it outlive this kernel; `%burst result`
                           brings home what it made
          --name NAME      how it is called in `%burst`
          --timeout 2h     end it with an error after so long; there is no limit otherwise
          --save-every 5m  how often an elastic.State is saved, in case that a worker is lost
          --restartable    a cell without commit may begin anew when workers change or are lost

        On Kubernetes
          --image I        pods from the image I, of those that the kernel's profile leaves to
                           clients
          --on-demand      no worker on a spot node, which those beyond the least would prefer
          --queue Q        begin when Kueue lets it, from its queue Q in the kernels' namespace
          -l jobset        as a JobSet instead of a Job, or as trainjob, volcano, where the admin
                           has switched it on; with --dry-run also rayjob, mpijob, to see them
        """
        __tracebackhide__ = True
        options = self._options(line)
        try:
            capsule = self._home.pack(f"%%distributed {line}".rstrip(), cell, options)
        except SyntaxError as exc:
            raise misspelt(exc) from None
        if capsule is None:
            return  # a cell with nothing in it
        for warning in [*capsule.warnings, *_never_commits(options, cell)]:
            print(warning, file=sys.stderr)
        if options.dry_run:
            print(self._home.listing(capsule))
            self._preview(self._wanted(options, cell, capsule))
            return
        shown = self._started(self._wanted(options, cell, capsule), request(options, capsule.installed), capsule)
        following = Following(shown, Outlet(self._shell, options.show, options.voices))
        if options.detach:
            threading.Thread(target=following.watch, name=f"elastic {shown['name']}", daemon=True).start()
            return
        self._finish(self._wait(following), options.give_back)

    def _wanted(self, options: Options, cell: str, capsule: Any) -> dict[str, Any]:
        """As the gateway is asked for it."""
        return {
            "workers": options.workers, "most": options.most if options.elastic else None, "engine": options.engine, "gpus": options.gpus,
            "detach": options.detach, "timeout_seconds": options.timeout, "name": options.name, "restartable": options.restartable,
            "queue": options.queue, "on_demand": options.on_demand or None, "launcher": options.launcher,
            "roles": list(options.roles) or None, "procs": options.procs if options.procs > 1 else None, "image": options.image,
            "uses_gpu": bool(GPU_WORDS.search(cell)) or self._home.has_gpu_data(capsule),
        }  # fmt: skip

    def _preview(self, wanted: dict[str, Any]) -> None:
        """The objects that would be made of it, where there is a cluster."""
        __tracebackhide__ = True
        try:
            manifests = call("preview", **{name: value for name, value in wanted.items() if value is not None})["manifests"]
        except ElasticError as exc:
            if exc.reason != BadRequest.reason:
                return  # nobody is there to ask: what would be taken along is known all the same
            raise usage(str(exc)) from None
        if manifests:
            print(f"\nIt would run as\n{_yaml(manifests)}")

    def _started(self, wanted: dict[str, Any], request: dict[str, Any], capsule: Any) -> dict[str, Any]:
        """The burst, as the gateway shows it. Nothing is left of one that can't be started."""
        created = asked("create", **wanted)
        shown, most = created["burst"], created["capsule_bytes"]
        try:
            if capsule.bytes > most:
                raise usage(
                    f"The cell would take {capsule.bytes / 1e6:.0f} MB along, and at most {most / 1e6:.0f} MB are taken here (Bursts."
                    f"capsule_bytes). {self._home.largest(capsule)} Write it to a file that the workers read."
                )
            depot(shown).bring(request, capsule.blobs)
            self._home.keep(shown["id"], capsule)
            return start(shown["id"], lambda text: print(f"[{shown['name']}: {text}]", file=sys.stderr))
        except ElasticError as exc:
            _try("cancel", shown)
            raise usage(str(exc)) from None
        except BaseException:
            _try("cancel", shown)
            raise

    def burst(self, line: str) -> None:
        """What becomes of cells that run on many workers.

        %burst ls               list them
        %burst attach NAME      show its output here, from the beginning, until it ends; the
                                stop button only stops looking
        %burst logs NAME        print what it has printed until now; -r 3: rank 3 alone
        %burst result NAME      bring home what it made
        %burst scale NAME N     so many workers from now on, of one of -w MIN:MAX; auto: as
                                many as there are idle GPUs for
        %burst cancel NAME      end its workers
        %burst yaml NAME        print the objects that it is made of in a cluster
        """
        __tracebackhide__ = True
        word, *rest = line.split() or ["ls"]
        if word == "ls" and not rest:
            print(table(asked("list")["bursts"]))
        elif word in ("attach", "cancel", "result") and len(rest) == 1:
            getattr(self, f"_{word}")(asked("show", burst=rest[0])["burst"])
        elif word == "logs" and (len(rest) == 1 or (len(rest) == 3 and rest[1] == "-r" and rest[2].isascii() and rest[2].isdigit())):
            self._logs(asked("show", burst=rest[0])["burst"], (int(rest[2]),) if len(rest) == 3 else None)
        elif word == "scale" and len(rest) == 2 and (rest[1] == "auto" or (rest[1].isascii() and rest[1].isdigit())):
            self._scale(asked("show", burst=rest[0])["burst"], None if rest[1] == "auto" else int(rest[1]))
        elif word == "yaml" and len(rest) == 1:
            print(_yaml(asked("yaml", burst=rest[0])["manifests"]))
        else:
            raise usage(
                f"%burst doesn't know {line.strip()!r}. It knows: ls · attach NAME · logs NAME -r 3 · scale NAME 4 · "
                "cancel NAME · result NAME · yaml NAME"
            )

    # inside

    def _options(self, line: str) -> Options:
        try:
            return read(line)
        except Usage as exc:
            raise usage(f"%%distributed: {exc}. `%%distributed?` explains its options.") from None

    def _wait(self, following: Following) -> Ended:
        """Its end; the stop button ends it."""
        __tracebackhide__ = True
        try:
            return following.follow()  # type: ignore[return-value]
        except KeyboardInterrupt:
            _try("cancel", following.shown)
            following.hurry()
            following.follow(time.monotonic() + STOPPING_SECONDS)
            raise
        except Exception:  # what can't be shown, say: nobody would follow them any more
            _try("cancel", following.shown)
            raise

    def _finish(self, ended: Ended, give_back: Optional[tuple[int, ...]]) -> list[str]:
        """The names of what it has brought home."""
        __tracebackhide__ = True
        if ended.outcome != burst.OK:
            raise self._home.failure(ended)
        names, besides = self._home.take(ended, give_back)
        if besides:
            print("\n".join(besides), file=sys.stderr)
        return names

    def _attach(self, shown: dict[str, Any]) -> None:
        __tracebackhide__ = True
        following = Following(shown, Outlet(self._shell, None, _voices(shown)))
        ended = following.follow()
        assert ended is not None
        if ended.outcome != burst.OK:
            raise self._home.failure(ended)
        print(f"`%burst result {shown['name']}` brings home what it made.")

    def _logs(self, shown: dict[str, Any], ranks: Optional[tuple[int, ...]]) -> None:
        Following(shown, Outlet(self._shell, ranks, _voices(shown)), status=False).catch_up()

    def _cancel(self, shown: dict[str, Any]) -> None:
        asked("cancel", burst=shown["id"])
        print(f"{shown['name']} had ended before." if shown["state"] == "ended" else f"The workers of {shown['name']} are being ended.")

    def _scale(self, shown: dict[str, Any], workers: Optional[int]) -> None:
        __tracebackhide__ = True
        shown = asked("scale", burst=shown["id"], workers=workers)["burst"]
        goal = "as many as there are idle GPUs for" if workers is None else f"{workers} workers"
        print(f"{shown['name']} has {shown['workers']} workers and goes to {goal} at a commit of all of them.")

    def _result(self, shown: dict[str, Any]) -> None:
        __tracebackhide__ = True
        if shown["state"] != "ended":
            raise usage(f"{shown['name']} has not ended yet: `%burst attach {shown['name']}` shows how far it is.")
        message = shown["message"]
        if shown["outcome"] == burst.ERROR:
            message += f"\n`%burst attach {shown['name']}` shows what came before, and raises what its cell has raised."
        ended = Ended(shown["id"], shown["outcome"], message, depot(shown))
        give_back = ended.depot.request().get("give_back")
        names = self._finish(ended, None if give_back is None else tuple(give_back))
        print(f"{shown['name']} has brought home {', '.join(names) or 'nothing'}.")


def asked(op: str, **fields: Any) -> dict[str, Any]:
    """The gateway's answer; what it refuses is a sentence for people."""
    __tracebackhide__ = True
    try:
        return call(op, **{name: value for name, value in fields.items() if value is not None})
    except ElasticError as exc:
        why = "Nobody starts workers here just now. " if exc.reason == AWAY else ""
        raise usage(f"{why}{exc}") from None


def _never_commits(options: Options, cell: str) -> list[str]:
    """What people of an elastic cell have to know before they wonder."""
    if not options.elastic or options.restartable or COMMIT.search(cell):
        return []
    return [
        "This cell has no commit: unless what it calls has, its number of workers stays as it begins, and a lost worker ends it."
        " `elastic.State?` shows what a cell needs (`from gateway import elastic`); with --restartable it may begin anew instead."
    ]


def _voices(shown: dict[str, Any]) -> int:
    """As ``Options.voices``, of a burst that is there."""
    return int(shown["most"]) * int(shown.get("procs", 1)) + len(shown.get("roles", ()))


def table(bursts: list[dict[str, Any]]) -> str:
    """For people, the newest last."""
    if not bursts:
        return "There are no bursts."
    rows = [("NAME", "ENGINE", "WORKERS", "GPUS", "STATE", "SECONDS")]
    for each in bursts:
        seconds = (each["ended"] or time.time()) - each["created"]
        workers, procs = each["workers"], each.get("procs", 1)
        numbers = f"{workers} x {procs}" if procs > 1 else str(workers), str(workers * each["gpus"])
        rows.append((each["name"], each["engine"], *numbers, each["outcome"] or each["state"], f"{seconds:.0f}"))
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in rows)


def _yaml(objects: list[dict[str, Any]]) -> str:
    """For ``kubectl apply``: every JSON document is one of YAML too."""
    return "\n---\n".join(json.dumps(each, indent=2) for each in objects)


def usage(text: str) -> Exception:
    """Shown as one sentence, and the cell has failed."""
    from IPython.core.error import UsageError

    return UsageError(text)


def _try(op: str, shown: dict[str, Any]) -> None:
    """Said to whoever hears it; where nobody does, the workers go on, and `%burst` finds them."""
    try:
        call(op, burst=shown["id"])
    except ElasticError as exc:
        print(f"{shown['name']}: {exc}", file=sys.stderr)


def install(shell: Any) -> None:
    magics = Distributed(shell)
    shell.register_magic_function(magics.distributed, "cell", "distributed")
    shell.register_magic_function(magics.burst, "line", "burst")
