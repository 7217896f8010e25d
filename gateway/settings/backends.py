"""Where kernels run, and how long they may take to start."""

from __future__ import annotations

from traitlets import Bool, Dict, List, Unicode
from traitlets.config import Configurable

from ..protocol.model import Spec
from ..traits import Bytes, Choice, Count, Seconds


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

    job_kinds = List(
        Choice(("jobset", "trainjob", "volcano")),
        help="""What cells on many workers may be made as besides Jobs (`-l jobset`): `jobset`, `trainjob` (Kubeflow Trainer v2), `volcano`.
        The cluster needs their controllers and the gateway the rights for them. [], the default: Jobs alone.""",
    ).tag(config=True)

    foreign_pods = Bool(
        True,
        help="""Whether pods of others that wait for a GPU count like kernels that wait, so that idle kernels give theirs back at once.
        True, the default; it needs the right to list pods in all namespaces, without which it is as False: then they wait for
        idle_timeout.""",
    ).tag(config=True)

    connect_timeout = Seconds(30.0, min=1, help="Seconds within which the cluster must answer when the gateway starts. Default 30.").tag(
        config=True
    )
