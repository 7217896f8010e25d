"""Who gets a GPU and for how long, and what a simulated one is."""

from __future__ import annotations

from traitlets import Bool, Unicode
from traitlets.config import Configurable

from ..leases.policy import Policy
from ..protocol.model import Rung
from ..traits import Bytes, Choice, Count, Priority, QuietHours, Seconds, Share


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
