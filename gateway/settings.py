"""Every knob of the gateway, declared once: unit, default, why, and what None and 0 mean.

A setting is read where it is used, through these classes alone; this module must never read the environment at import, nor
decide anything: it only says what the administrator wants.
"""

from __future__ import annotations

from pathlib import Path
from traceback import extract_tb
from typing import Any

from jupyter_core.paths import jupyter_config_path
from traitlets import Bool, Dict, List, Unicode
from traitlets.config import Config, Configurable, JSONFileConfigLoader, PyFileConfigLoader
from traitlets.config.loader import ConfigFileNotFound

from .leases.policy import Policy
from .protocol.model import Rung, Spec
from .traits import MOST, Bytes, Choice, Count, Name, Priority, QuietHours, Seconds, Share

__all__ = [
    "MOST", "Bursts", "Bytes", "Choice", "Count", "ElasticGateway", "KubernetesBackend", "Launching", "Leases", "LocalBackend",
    "Name", "Priority", "QuietHours", "Seconds", "Share", "SimulatedGpu", "StrictConfigFiles", "Usage", "config_stamp",
    "machine_config",
]  # fmt: skip

CONFIG_FILES = ("jupyter_config", "jupyter_elastic_gateway_config")  # of one folder the later wins


def machine_config() -> Config:
    """What the machine's configuration files say: ``jupyter_elastic_gateway_config.py`` or ``.json`` on Jupyter's config path.

    For processes that have no server of their own to read them (papermill, the broker). Raises what a broken file raises.
    """
    config = Config()
    for folder in reversed(jupyter_config_path()):
        for name in CONFIG_FILES:
            for loader in (JSONFileConfigLoader(f"{name}.json", path=folder), PyFileConfigLoader(f"{name}.py", path=folder)):
                try:
                    config.merge(loader.load_config())
                except ConfigFileNotFound:
                    continue
    return config


def config_stamp() -> tuple[tuple[str, int, int], ...]:
    """Changes whenever one of the machine's configuration files does, comes or goes."""
    seen = []
    for folder in jupyter_config_path():
        for name in CONFIG_FILES:
            for path in (Path(folder, f"{name}.json"), Path(folder, f"{name}.py")):
                try:
                    found = path.stat()
                except OSError:
                    continue
                seen.append((str(path), found.st_mtime_ns, found.st_size))
    return tuple(seen)


class StrictConfigFiles:
    """Of a Jupyter application: a configuration file that was named and isn't there, or one that can't be read, stops the start. Stock
    programs go on without it."""

    raise_config_file_errors = True

    def load_config_file(self: Any, suppress_errors: bool = False) -> None:
        named = self.config_file
        if named and not any(Path(named).expanduser().with_suffix(kind).is_file() for kind in (".py", ".json")):
            self._no_config(f"There is no configuration file {named} (--config): check the path; it must be a .py or a .json file.")
        try:
            super().load_config_file(suppress_errors=False)  # type: ignore[misc]
        except Exception as exc:
            self.log.debug("Configuration that can't be read", exc_info=True)
            at = next((f" ({each.filename}, line {each.lineno})" for each in extract_tb(exc.__traceback__) if each.name == "<module>"), "")
            self._no_config(f"{named or 'A configuration file'} can't be read: {type(exc).__name__}: {exc}{at}. Mend it and start again.")

    def _no_config(self: Any, why: str) -> None:
        self.log.critical(why)
        self.exit(1)


class ElasticGateway(Configurable):
    """What this gateway is."""

    name = Name(
        "gateway",
        help="""The gateway's name. Its kernels carry it, and a gateway of the same name adopts them after a restart;
        two gateways that share a runtime_dir need different names.""",
    ).tag(config=True)

    backend = Choice(
        ("local", "kubernetes"),
        default_value="local",
        help="""Where kernels run: "local", as processes of this machine (the default: works everywhere), or "kubernetes", a pod each.""",
    ).tag(config=True)

    simulated_gpus = Count(
        None,
        allow_none=True,
        help="""How many GPUs to simulate (a number). None, the default: what the driver finds, and none are simulated. 0: no GPU at
        all, whatever the driver finds: cells never wait. Simulated GPUs are leased, parked and resumed like real ones, but for
        the device itself: for trying things out where there is no GPU.""",
    ).tag(config=True)

    embedded = Bool(
        False,
        help="""Whether a user's own Jupyter server leases GPUs to its kernels itself, with no gateway beside it. False, the default: it
        starts kernels as ever, and those with the elastic provisioner share the machine's broker.""",
    ).tag(config=True)

    visible_devices = Choice(
        ("leased", "all"),
        default_value="leased",
        help="""What CUDA_VISIBLE_DEVICES of a kernel says at its first lease. "leased", the default: exactly the GPUs it has leased, so
        that a framework that takes every card it sees takes the right ones. "all": every GPU of the machine, the leased ones first;
        only so can a parked kernel resume on another GPU of the machine.""",
    ).tag(config=True)


class Leases(Configurable):
    """Who gets a GPU, and for how long: for the whole site. ``policy_file`` has what differs for some."""

    policy_file = Unicode(
        "",
        help="""A YAML file with rules for the site, for flavors of GPU, kernelspecs, groups and users. It is read when the gateway starts
        and again within a second of each change, no restart needed; what can't hold in it is refused with line and reason, and the
        rules before it stay. On Kubernetes it may lie in a mounted ConfigMap. "", the default: none, the settings here hold for
        everybody.""",
    ).tag(config=True)

    idle_timeout = Seconds(
        120.0,
        allow_none=True,
        help="""Seconds without GPU work after which a kernel's GPU is released although nobody waits. Default 120: of the gaps between
        GPU cells in a public trace about a third are shorter, and waiters don't have to wait for it anyway. 0: at once after each
        cell. None: never.""",
    ).tag(config=True)

    min_hold = Seconds(
        5.0,
        help="""Seconds for which a GPU is left with a kernel that has just got it, even if others wait: against thrashing. Default 5, a
        few times what parking and resuming cost. 0: it may be taken as soon as its cell ends.""",
    ).tag(config=True)

    max_hold = Seconds(
        None,
        allow_none=True,
        help="""Seconds after which a kernel gives its GPU up to others who wait, whatever min_hold and its user's own hold say; it takes
        effect when no cell runs, as a cell can't be stopped halfway. None, the default: no limit. 0: after each cell.""",
    ).tag(config=True)

    queue_timeout = Seconds(
        None,
        allow_none=True,
        help="""Seconds after which a cell that waits for a GPU ends with an error. None, the default: it waits for ever, as a reader of
        the notebook can interrupt it. 0: it gets a GPU that is free or none.""",
    ).tag(config=True)

    reclaim = Bool(
        True,
        help="""Whether a GPU is taken from an idle kernel as soon as somebody else waits, longest idle first. False: only idle_timeout
        and max_hold release it.""",
    ).tag(config=True)

    gpus_per_user = Count(
        None,
        allow_none=True,
        help="""How many GPUs one user may hold at a time, over all kernels. None, the default: no limit; turns are fair over users
        anyway. 0: nobody gets one.""",
    ).tag(config=True)

    gpus_per_kernel = Count(
        None,
        allow_none=True,
        help="""How many GPUs one kernel may ask for. None, the default: as many as its node has. 0: none, so a cell that needs one ends
        with an error.""",
    ).tag(config=True)

    priority = Priority(
        0,
        help="""A number: of those who wait, the higher is served before the lower, whatever the fair order says, so that the lower may
        starve. Nobody's cell is stopped for it. Default 0, the same for all: the fair order alone decides. It means something where
        it differs, by kernelspec, group or user.""",
    ).tag(config=True)

    weight = Share(
        1.0,
        help="""A number: a user's share of the GPUs in the fair order; a user of weight 2 gets twice the GPU time of one of weight 1 while
        both wait. Default 1, the same for all. 0: served when nobody else waits. It means something where it differs, by group or
        user.""",
    ).tag(config=True)

    quiet_hours = QuietHours(
        "",
        help="""Hours in which idle_timeout doesn't count, so that a GPU stays with an idle kernel until somebody else waits for it: at
        night nobody is glad of a GPU that lies free. Such as "22:00-06:00", or "mon-fri 18:00-08:00 Europe/Vienna; sat,sun
        00:00-24:00"; without a time zone the gateway's own counts. "", the default: none.""",
    ).tag(config=True)

    reserve_after = Seconds(
        60.0,
        allow_none=True,
        help="""Seconds of waiting after which a request for several GPUs gathers them one by one, and smaller ones no longer overtake it.
        Default 60. 0: from the start, which leaves GPUs unused meanwhile. None: never, so it may starve.""",
    ).tag(config=True)

    usage_half_life = Seconds(
        3600.0,
        min=1,
        allow_none=True,
        help="""Seconds after which GPU time that a user has had counts half in the fair order. Default an hour. None: it counts for
        ever.""",
    ).tag(config=True)

    park_backoff = Seconds(
        60.0,
        help="""Seconds without a new attempt after a kernel could not be parked (its state didn't fit into host memory, say). Default 60.
        0: it is tried again at once.""",
    ).tag(config=True)

    use_interval = Seconds(
        2.0,
        help="""Seconds between two looks at whether an idle kernel still uses its GPU (a training thread goes on after its cell), as the
        driver tells it; such use counts as executing. Default 2: the driver averages over one. 0: never look. Simulated GPUs are
        never looked at.""",
    ).tag(config=True)

    def policy(self) -> Policy:
        """The lease book's rules for the whole site, as set now, outside quiet hours."""
        return Policy(
            idle_timeout=self.idle_timeout,
            min_hold=self.min_hold,
            max_hold=self.max_hold,
            queue_timeout=self.queue_timeout,
            reclaim=self.reclaim,
            gpus_per_user=self.gpus_per_user,
            gpus_per_kernel=self.gpus_per_kernel,
            priority=self.priority,
            weight=self.weight,
            reserve_after=self.reserve_after,
            usage_half_life=self.usage_half_life,
            park_backoff=self.park_backoff,
        )


class Usage(Configurable):
    """Who has had how many GPUs, for how long: kept on disk, for the administrator."""

    database = Unicode(
        "",
        help="""The SQLite file in which GPU time is kept, of each user, kernel and cell, about 200 bytes a cell. "", the default:
        `usage.db` beside the kernels' sockets (LocalBackend.runtime_dir); where kernels are pods none, so that it is forgotten as the
        gateway ends, and the chart names one with persistence.enabled.""",
    ).tag(config=True)

    prices = Dict(
        value_trait=Share(),
        key_trait=Unicode(),
        help="""What an hour of one GPU costs, by flavor: `{"a100": 2.5}`, in whatever money. {}: nothing is said of cost. It is multiplied
        with the time for which a GPU was held.""",
    ).tag(config=True)


class Bursts(Configurable):
    """Cells that run on many workers (``%%distributed``)."""

    most_workers = Count(
        64,
        help="""How many workers one burst may have. Default 64, more than one machine has use for. 0: no bursts here.""",
    ).tag(config=True)

    grow_after = Seconds(
        60.0,
        allow_none=True,
        help="""Seconds for which GPUs must be idle before an elastic burst (-w MIN:MAX) takes them, and between two such changes. Default
        60, as a change costs its workers some seconds. None: it grows by `%burst scale` alone. What others wait for it gives back at
        once.""",
    ).tag(config=True)

    keep_results = Seconds(
        3600.0,
        min=60,
        allow_none=True,
        help="""Seconds for which the output and the result of a burst that has ended are kept, so that `%burst attach` finds them.
        Default an hour; a minute at least, for the cell that waits for them. None: until somebody deletes them.""",
    ).tag(config=True)

    capsule_bytes = Bytes(
        2 << 30,
        help="""Bytes of variables that a cell may take along to its workers. Default 2 GiB. They lie in runtime_dir until the burst is
        forgotten. What is larger belongs into files that the workers read.""",
    ).tag(config=True)

    journal_bytes = Bytes(
        256 << 20,
        min=1 << 16,
        help="Bytes of output kept of one burst, all workers together. Default 256 MiB. What is over is dropped, and the notebook says so.",
    ).tag(config=True)


class SimulatedGpu(Configurable):
    """What a simulated GPU pretends."""

    park_seconds = Seconds(
        0.5,
        help="Seconds that parking takes, and resuming, whatever lies on the GPU. Default 0.5, about what a driver needs. 0: nothing.",
    ).tag(config=True)

    seconds_per_gb = Seconds(
        0.1,
        help="""Seconds that parking, and resuming, takes more for each 10^9 bytes on the GPU. Default 0.1, about the speed of a PCIe 5
        bus. 0: nothing.""",
    ).tag(config=True)

    memory_bytes = Bytes(16 << 30, min=1, help="Bytes of memory of each simulated GPU. Default 16 GiB, a small card.").tag(config=True)

    rung = Choice(
        tuple(str(rung) for rung in Rung),
        default_value=str(Rung.ANYWHERE),
        help="""What the simulated driver can do with a parked kernel: resume it "anywhere", on the "same-gpu", or not park at all
        ("exclusive"). Default: what today's drivers can.""",
    ).tag(config=True)

    def costs(self) -> dict[str, float]:
        """What a supervisor has to know of it."""
        return {"park_seconds": self.park_seconds, "seconds_per_gb": self.seconds_per_gb}


class Launching(Configurable):
    """How long a kernel may take to start, wherever it runs."""

    launch_timeout = Seconds(
        120.0,
        min=1,
        help="""Seconds that a kernel may take from its start until it answers. Default 120: imports from a slow network disk take
        minutes, and a kernel that dies is told at once anyway. Bounds for what a client asks by KERNEL_LAUNCH_TIMEOUT:
        max_launch_timeout.""",
    ).tag(config=True)

    max_launch_timeout = Seconds(
        600.0,
        min=1,
        allow_none=True,
        help="The most seconds a client may ask for by KERNEL_LAUNCH_TIMEOUT. Default 600. None: no more than launch_timeout.",
    ).tag(config=True)

    unasked_launch_timeout = Seconds(
        40.0,
        allow_none=True,
        help="""The KERNEL_LAUNCH_TIMEOUT, in seconds, that is nobody's wish: stock Jupyter servers send 40 (the default here) with every
        kernel, so that an administrator's longer launch_timeout would never count. 0: as None, each value is a wish.""",
    ).tag(config=True)


class LocalBackend(Launching):
    """Kernels as processes of this machine."""

    runtime_dir = Unicode(
        "",
        help="""The folder of the running kernels' sockets and state, private to this Unix user. "", the default: `elastic` in Jupyter's
        runtime folder, or `/tmp/jupyter-elastic-<uid>` where that path is too long for a socket. Gateway, broker and papermill see
        the same kernels only if they have the same one.""",
    ).tag(config=True)

    lock_dir = Unicode(
        "",
        help="""The folder of the machine-wide locks, one file a GPU, which every Unix user can write. "", the default:
        `jupyter-elastic` in `/run/lock` where everybody may write there, else in `/tmp`. All users of a machine need the same one;
        containers that share GPUs must share it too. Simulated GPUs are locked there only where a folder is named.""",
    ).tag(config=True)

    shutdown_grace = Seconds(
        5.0,
        help="Seconds between asking a kernel to end and killing it. Default 5, as Jupyter has it. 0: killed at once.",
    ).tag(config=True)

    broker_linger = Seconds(
        60.0,
        help="""Seconds that an on-demand broker stays without any kernel before it ends. Default 60: batch jobs come in rows. 0: it ends
        with its last kernel.""",
    ).tag(config=True)

    kernel_transport = Choice(
        ("ipc", "tcp"),
        default_value="ipc",
        help="""How a supervisor speaks with its kernel: "ipc", Unix sockets that no other user can reach (the default), or "tcp" for
        kernels that know nothing else.""",
    ).tag(config=True)

    starts_at_once = Count(
        None,
        allow_none=True,
        help="""How many kernels may be starting at a time; the others wait for their turn, fair over users. A start takes most of a second
        of a processor, so fifty at once would all be ready at the very end, and everybody's cells would be slow until then. None, the
        default: three for each processor that the gateway may use. 0: no limit. A start that takes longer than 20 seconds waits for
        something else than a processor, and no longer counts.""",
    ).tag(config=True)

    inherited_env = List(
        Unicode(),
        default_value=[
            "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME",
            "VIRTUAL_ENV", "CONDA_PREFIX", "SSL_CERT_FILE",
        ],
        help="""Names of the gateway's own environment variables that its kernels get too. Everything else, its secrets included, stays
        with the gateway. []: none. Kernels that a process starts for itself (papermill, nbclient) inherit all, as their users
        expect.""",
    ).tag(config=True)  # fmt: skip

    journal_bytes = Bytes(
        Spec.journal_bytes,
        min=1 << 20,
        help="""Bytes of output kept for each kernel while no browser listens or one reads slowly. Default 128 MiB. What is over is
        dropped, text first, and the notebook says so.""",
    ).tag(config=True)

    window_bytes = Bytes(
        Spec.window_bytes,
        min=1 << 16,
        help="""Bytes sent to a browser and not yet acknowledged, after which it has to catch up before it gets more. Default 8 MiB: a
        second of a fast line.""",
    ).tag(config=True)

    session_seconds = Seconds(
        Spec.session_seconds,
        help="Seconds for which an absent browser's unread output is kept. Default a day. 0: not at all.",
    ).tag(config=True)

    stall_seconds = Seconds(
        Spec.stall_seconds,
        min=0.1,
        help="""Seconds without any progress after which something that runs while the GPU state is parked is taken to need the GPU.
        Default 1.""",
    ).tag(config=True)

    notice_after = Seconds(
        Spec.notice_after,
        help="Seconds of waiting for a GPU after which the notebook shows a line about it. Default 0.3. 0: at once.",
    ).tag(config=True)


class KubernetesBackend(Launching):
    """Kernels as pods of a cluster."""

    namespace = Unicode(
        "",
        help="""The namespace of the kernels' pods. "", the default: the gateway's own where it runs in the cluster, else `default`.""",
    ).tag(config=True)

    context = Unicode(
        "",
        help="""The context of the kubeconfig that is used. "", the default: its current one. Without meaning inside a cluster.""",
    ).tag(config=True)

    kubeconfig = Unicode(
        "",
        help="""The kubeconfig file. "", the default: inside a cluster the gateway's service account, else as kubectl finds it.""",
    ).tag(config=True)

    code_image = Unicode(
        "",
        help="""The gateway's own image, which slots run. No default; the chart sets it.""",
    ).tag(config=True)

    pull_policy = Choice(
        ("IfNotPresent", "Always", "Never"), default_value="IfNotPresent", help="When code_image is pulled. Default IfNotPresent."
    ).tag(config=True)

    profiles = Dict(
        help="""What kernels' pods look like: a dictionary of profiles by name, each with its `image` and what else differs from the
        defaults (`cpu`, `memory`, `gpu_resource`, `volumes`, ...; README.md explains them all). A kernelspec names its profile in
        `metadata.kernel_provisioner.config.profile`. No default: at least one is needed.""",
    ).tag(config=True)

    default_profile = Unicode("default", help="The profile of kernelspecs that name none. Default `default`.").tag(config=True)

    foreign_pods = Bool(
        True,
        help="""Whether pods of others that wait for a GPU count like kernels that wait, so that idle kernels give theirs back at once.
        True, the default; it needs the right to list pods in all namespaces, without which it is as False: then they wait for
        idle_timeout.""",
    ).tag(config=True)

    connect_timeout = Seconds(30.0, min=1, help="Seconds within which the cluster must answer when the gateway starts. Default 30.").tag(
        config=True
    )
