"""The nouns of the link: phases, what a supervisor is told at birth, what it says of itself.

Standard library only, Python >= 3.9 (users' images). It must hold no behaviour beyond conversion to and from JSON.
Ages travel as durations in seconds (two machines need not agree on the time); memory is bytes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

IDENTITY = ("kernel_id", "user", "display", "env", "cwd", "metadata")  # of a Spec: whose kernel it is, and where it works
GPU_IN_USE = "gpu_in_use"  # a supervisor's answer to a Grant: another kernel is still on that GPU


class _Word(str, Enum):
    """A str that prints as its value (``enum.StrEnum`` is too new for users' images)."""

    __str__ = str.__str__


class Phase(_Word):
    """Where a kernel's CUDA state is, and whether the kernel may use a GPU.

    COLD: never held one. WAITING: a cell is held at the gate. RESUMING: granted, state is coming back.
    HOLDING: may run. PARKING: state is leaving the GPU. PARKED: state lies in host memory.
    """

    COLD = "COLD"
    WAITING = "WAITING"
    RESUMING = "RESUMING"
    HOLDING = "HOLDING"
    PARKING = "PARKING"
    PARKED = "PARKED"


class Rung(_Word):
    """What a GPU's driver can do for a parked kernel, best first."""

    ANYWHERE = "anywhere"  # restore on another GPU of the node (driver >= 580)
    SAME_GPU = "same-gpu"  # restore on the GPU it left (driver >= 575)
    EXCLUSIVE = "exclusive"  # can't park: a kernel keeps its GPU for life


@dataclass(frozen=True)
class Gpu:
    """One leasable device, as ``GET /api/gpu`` shows it."""

    uuid: str
    node: str = "local"
    flavor: str = "gpu"
    memory_bytes: int = 0
    simulated: bool = False
    rung: Rung = Rung.EXCLUSIVE
    reason: str = ""  # why this rung and not a better one
    resource: str = ""  # what a cluster counts it in, such as "nvidia.com/gpu"; "" on a machine, whose are all of one kind


class _Json:
    """Conversion that ignores unknown keys, so that two neighbouring versions understand each other."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Any:
        known = cls.__dataclass_fields__  # type: ignore[attr-defined]
        return cls(**{k: v for k, v in data.items() if k in known})


@dataclass
class Spec(_Json):
    """What a supervisor is told at birth, by a file of mode 0600 (or a Secret), never by argument or environment.

    ``argv`` may hold ``{connection_file}``. ``env`` is the kernel's whole environment. ``owner_pid`` and
    ``owner_started`` (clock ticks since boot, field 22 of /proc/PID/stat) name the process whose end ends this
    supervisor; both None for a gateway's kernel, which outlives its gateway.
    """

    kernel_id: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    key: str  # HMAC key of the Jupyter protocol, also of the link
    inherit_env: bool = False  # ``env`` is on top of the supervisor's own (a container's, as its image has it)
    fallback_cwd: str | None = None  # the working folder where ``cwd`` isn't there; None: that is an error
    user: str = ""
    name: str = ""  # kernelspec name
    display: str = ""  # what others see in the queue line, e.g. the notebook's file name
    language: str = "python"
    interrupt_mode: str = "signal"
    kernel_transport: str = "ipc"  # between supervisor and kernel: ipc or tcp
    gpus: int = 1  # how many GPUs a lease of this kernel has; 0: never leases, the gate is open
    owner: str = ""  # name of the owning gateway, "" where a process owns it
    owner_pid: int | None = None
    owner_started: int | None = None
    ip: str = "127.0.0.1"  # where the plain Jupyter ports listen
    ports: dict[str, int] = field(default_factory=dict)  # shell, iopub, stdin, control, hb; missing: any free one
    curve_publickey: str | None = None  # CurveZMQ keys of the plain ports, None: plain text
    curve_secretkey: str | None = None
    link_ip: str | None = None  # where the link listens; None: a socket in the supervisor's folder, for this user alone
    link_port: int = 0  # 0: any free one
    link_curve: dict[str, str] | None = None  # with link_ip: Z85 text "publickey" and "secretkey", and "client", the one key let in
    journal_bytes: int = 128 << 20  # unacknowledged output kept for absent or slow browsers
    window_bytes: int = 8 << 20  # credit of one browser: sent and not yet acknowledged
    session_seconds: float = 24 * 3600  # how long an absent browser's place is kept
    stall_seconds: float = 1.0  # a request that makes no progress for so long while PARKED asks for the lease
    notice_after: float = 0.3  # waits shorter than this show no line in the notebook
    lock_dir: str | None = None  # where GPUs are locked by the kernel that is on them; None: nobody else could be
    simulated: dict[str, float] | None = None  # {"park_seconds","seconds_per_gb"}: devices are simulated
    metadata: dict[str, Any] = field(default_factory=dict)  # free for the owner: adoption gives it back
    unclaimed: bool = False  # started for nobody yet: a call will say whose it is (IDENTITY)


@dataclass
class LeaseState(_Json):
    """A supervisor's own word on its lease. The broker's book follows it and never the reverse."""

    phase: str = Phase.COLD
    gpus: list[str] = field(default_factory=list)  # held now, or being resumed to
    home: list[str] = field(default_factory=list)  # where the parked state came from
    count: int = 1
    wanted: bool = False  # cells are held at the gate
    executing: bool = False  # something that may use the GPU runs
    phase_for: float = 0.0  # seconds in this phase
    idle_for: float | None = None  # seconds since the last GPU work ended; None while executing
    hold_for: float = 0.0  # seconds for which the user asked to keep the GPU (``%gpu hold``)
    release_asked: int = 0  # counts ``%gpu release``
    parked_bytes: int = 0
    order: list[int] = field(default_factory=lambda: [0, 0])  # epoch of the last order taken
    answer: str = ""  # "done", or why that order was refused or failed: a short code; "": it is being carried out
    answer_message: str = ""
    fatal: bool = False  # the CUDA state is lost; the process may still occupy ``gpus``
    alarm: str = ""  # a driver call that doesn't come back: for people
    rung: str = ""  # what can be done with this kernel's state, which may be less than its GPU's driver can; "": not known yet
    rung_reason: str = ""  # why not more


@dataclass
class KernelState(_Json):
    """A supervisor's whole word on itself, sent on each change. Level, not edge: the newest one says everything."""

    kernel_id: str = ""
    execution_state: str = "starting"  # starting, idle, busy, restarting, terminating, dead: what front ends are shown
    ending: bool = False  # its owner has begun to end it for good
    idle_seconds: float = 0.0  # since the last activity of a user
    alive: bool = False  # the kernel process exists
    ready: bool = False  # it has answered kernel_info once since it was (re)started
    exit_code: int | None = None  # negative: killed by that signal; None: not ended
    reason: str = ""  # why it ended, with its last words: for people
    starts: int = 0  # how often a kernel process was started under this supervisor
    pid: int = 0
    session: str = ""  # the kernel process's own session id, which whoever speaks in its place must use
    in_flight: int = 0  # requests sent to the kernel and not yet answered
    held: int = 0  # cells at the gate
    sessions: int = 0  # browsers attached
    connection: dict[str, Any] = field(default_factory=dict)  # of the plain ports, without the key
    lease: LeaseState = field(default_factory=LeaseState)
    simulated_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        """Made several times for each cell, so no list in it is a copy: to be sent, and changed by nobody."""
        return {**vars(self), "lease": dict(vars(self.lease))}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> KernelState:
        state = super().from_json(data)
        if isinstance(state.lease, dict):
            state.lease = LeaseState.from_json(state.lease)
        return state
