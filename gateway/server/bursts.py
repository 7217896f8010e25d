"""``/api/bursts``: the bursts of this gateway's kernels, for programs and people; one is created by its kernel, or here for it.

Results are handed out as the bytes that they are. What else lies in a burst's folder stays between the kernel and its ranks: the capsule
(the user's variables), how the kernel's Python is run (its environment may hold secrets), saved states, and exceptions as objects, whose
text is among the events. It must never unpickle anything, nor read a whole result into memory.
"""

from __future__ import annotations

from jupyter_server.utils import url_path_join
from tornado.iostream import StreamClosedError

from ..broker.link import KernelLink
from ..burst import posted
from ..burst.bursts import Bursts
from ..burst.gathering import read_line
from ..burst.record import RUNNING, WAITING, Record
from ..protocol import burst
from ..protocol.errors import BadRequest, BrokerUnavailable, ElasticError
from .answers import Handler, no_such_kernel, rest

EVENTS_BYTES = 1 << 20  # of one answer
PIECE = 1 << 20

_BURST = r"(?P<which>[A-Za-z0-9._-]{1,63})"


class BurstHandlerBase(Handler):
    auth_resource = "bursts"

    @property
    def bursts(self) -> Bursts:
        broker = self.settings.get("elastic_broker")
        bursts = next((each for each in broker.beside if isinstance(each, Bursts)), None) if broker is not None else None
        if bursts is None:
            raise BrokerUnavailable("This server keeps no bursts.")
        return bursts

    def found(self, which: str) -> Record:
        """By id or name: the asker's own, or anybody's where the asker may act on all. Raises ``ElasticError``."""
        theirs = getattr(self.authorizer, "all_kernels", None)
        user = None if theirs is None or theirs(self.current_user) else self.current_user.username
        return self.bursts.find(which, user)

    def whole(self, name: str) -> int:
        text = self.get_query_argument(name, "0")
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise BadRequest(f"{name} must be a whole number.")
        return int(text)


class BurstsHandler(BurstHandlerBase):
    """``POST`` creates one for a kernel, which may be busy; ``dry_run``: only what it would be made of in a cluster."""

    @rest
    async def get(self) -> None:
        self.answer({"bursts": [each for each in self.bursts.listing() if self.mine(each["user"])]})

    @rest
    async def post(self) -> None:
        bursts = self.bursts
        wanted = posted.read(self.body(), bursts.capsule_bytes)
        link = self.line(wanted.kernel_id)
        if wanted.dry_run:
            self.answer({"manifests": bursts.preview(link.supervisor, dict(wanted.wanted))})
            return
        record = await posted.create(bursts, link, wanted)
        self.set_header("Location", url_path_join(self.base_url, "api", "bursts", record.id))
        self.answer(bursts.shown(record), 201)

    def line(self, kernel_id: str) -> KernelLink:
        """To a kernel on which the asker may act. Raises ``ElasticError``; of others' kernels nobody learns that they are there."""
        link: KernelLink | None = self.settings["elastic_broker"].links.get(kernel_id)
        if link is not None and self.mine(link.supervisor.whose_name):
            return link
        kernels = self.kernel_manager
        if link is None and kernel_id in kernels and self.mine(kernels.user_of(kernel_id)):
            raise ElasticError("The kernel still starts, or can't be reached just now: ask again.", reason="pending")
        raise no_such_kernel()


class BurstHandler(BurstHandlerBase):
    """``DELETE`` ends one that runs or waits (202), and forgets one that has ended, with its result (204)."""

    @rest
    async def get(self, which: str) -> None:
        self.answer(self.bursts.shown(self.found(which)))

    @rest
    async def delete(self, which: str) -> None:
        bursts, record = self.bursts, self.found(which)
        shown = bursts.shown(record)
        if shown["state"] in (RUNNING, WAITING):
            bursts.cancel(record)
            self.answer(shown, 202)
            return
        bursts.forget(record)
        self.set_status(204)
        self.finish()


class EventsHandler(BurstHandlerBase):
    """``?since=N``: what has happened from place ``N`` of the journal on, and the ``next`` place; ``wait=1``: not before there is some."""

    @rest
    async def get(self, which: str) -> None:
        bursts, record, since = self.bursts, self.found(which), self.whole("since")
        data = await bursts.events(record, since, EVENTS_BYTES, wait=bool(self.whole("wait")))
        while b"\n" not in data and (more := await bursts.events(record, since + len(data), EVENTS_BYTES)):
            data += more  # an event is told whole, however long
        whole = data[: data.rfind(b"\n") + 1]
        events = filter(None, map(read_line, whole.split(b"\n")))
        self.answer({"events": list(events), "next": since + len(whole)})


class ResultHandler(BurstHandlerBase):
    """What a rank has given back, as the bytes that they are: the header ``X-Sizes`` says of how many buffers, each at a multiple of 64."""

    @rest
    async def get(self, which: str, rank: str) -> None:
        file = self.bursts.result(self.found(which), int(rank))
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("Content-Length", str(file.stat().st_size))
        self.set_header("X-Sizes", ",".join(map(str, burst.buffer_sizes(file))))
        with file.open("rb") as source:
            try:
                while piece := source.read(PIECE):
                    self.write(piece)
                    await self.flush()
            except StreamClosedError:
                return


class ScaleHandler(BurstHandlerBase):
    """``{"workers": n}``: so many from now on, as far as there are GPUs; null: as many as there are GPUs for."""

    @rest
    async def post(self, which: str) -> None:
        bursts, record, body = self.bursts, self.found(which), self.body()
        if "workers" not in body:
            raise BadRequest('The body must be {"workers": n}, or null for as many as there are GPUs for.')
        bursts.scale(record, body["workers"])
        self.answer(bursts.shown(record), 202)


default_handlers = [
    (r"/api/bursts", BurstsHandler),
    (rf"/api/bursts/{_BURST}", BurstHandler),
    (rf"/api/bursts/{_BURST}/events", EventsHandler),
    (rf"/api/bursts/{_BURST}/scale", ScaleHandler),
    (rf"/api/bursts/{_BURST}/result/(?P<rank>[0-9]{{1,7}})", ResultHandler),
]
