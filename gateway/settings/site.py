"""What this gateway is, and what it keeps and shows of itself."""

from __future__ import annotations

from traitlets import Bool, Dict, Unicode
from traitlets.config import Configurable

from ..traits import Choice, Count, Name, Share


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

    log_format = Choice(
        ("text", "json"),
        default_value="text",
        help="""How the log is written: "text", for people (the default), or "json", an object a line with `time`, `level`, `logger`,
        `message`, and where it is about one `kernel_id`, `lease_id`, `user` and the rest of what happened.""",
    ).tag(config=True)

    visible_devices = Choice(
        ("leased", "all"),
        default_value="leased",
        help="""What CUDA_VISIBLE_DEVICES of a kernel says at its first lease. "leased", the default: exactly the GPUs it has leased, so
        that a framework that takes every card it sees takes the right ones. "all": every GPU of the machine, the leased ones first;
        only so can a parked kernel resume on another GPU of the machine.""",
    ).tag(config=True)


class Usage(Configurable):
    """Who has had how many GPUs, for how long: kept on disk, for the administrator."""

    database = Unicode(
        "",
        help="""The SQLite file in which GPU time is kept, of each user, kernel and cell, about 200 bytes a cell. "", the default:
        `usage.db` beside the kernels' sockets (LocalBackend.runtime_dir); where kernels are pods none, so that it is forgotten as the
        gateway ends, and the chart names one with persistence.enabled.""",
    ).tag(config=True)

    keep_days = Count(
        None,
        min=1,
        allow_none=True,
        help="""Days after whose end a stretch of GPU time is removed from the file; `usage` then tells of what is newer. The totals that
        Prometheus reads never go back, so who had how much altogether stays, without kernels and times. None, the default: for ever, as
        five million cells take a GB.""",
    ).tag(config=True)

    prices = Dict(
        value_trait=Share(),
        key_trait=Unicode(),
        help="""What an hour of one GPU costs, by flavor: `{"a100": 2.5}`, in whatever money. {}: nothing is said of cost. It is multiplied
        with the time for which a GPU was held.""",
    ).tag(config=True)
