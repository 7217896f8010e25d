"""Cells on many workers."""

from __future__ import annotations

from traitlets import Bool, Unicode
from traitlets.config import Configurable

from ..traits import Bytes, Count, Seconds


class Bursts(Configurable):
    """Cells that run on many workers (``%%distributed``)."""

    most_workers = Count(
        64,
        help="""How many workers one burst may have, and on one machine how many processes all of them may be (--procs). Default 64, more
        than one machine has use for. 0: no bursts here.""",
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

    trusted_network = Bool(
        False,
        help="""Whether everybody who can reach this machine's ports may run code as its users. TensorFlow's parameter server (-e tf-ps)
        listens on all addresses of a machine, encrypts nothing and runs whatever it is sent. Default False: -e tf-ps is refused where
        workers are processes of one machine.""",
    ).tag(config=True)

    capsule_bytes = Bytes(
        2 << 30,
        help="""Bytes of variables that a cell may take along to its workers. Default 2 GiB. They lie in runtime_dir until the burst is
        forgotten. What is larger belongs into files that the workers read. What workers in pods save, and bring home, is bounded alike.""",
    ).tag(config=True)

    folder = Unicode(
        "",
        help="""Where bursts are kept whose workers are pods: what cells take along, output, results. "", the default: below Jupyter's
        runtime folder. (Where workers are processes they lie beside the kernels, in runtime_dir.)""",
    ).tag(config=True)

    port = Count(
        0,
        help="""The port on which workers in pods reach this gateway by HTTPS. 0, the default: any that is free, and the same again after a
        restart.""",
    ).tag(config=True)

    address = Unicode(
        "",
        help="""How workers in pods reach this gateway, such as `https://gateway.jupyter:8889`. "", the default: at its machine's or pod's
        own address, on port.""",
    ).tag(config=True)

    journal_bytes = Bytes(
        256 << 20,
        min=1 << 16,
        help="Bytes of output kept of one burst, all workers together. Default 256 MiB. What is over is dropped, and the notebook says so.",
    ).tag(config=True)
