"""What all our HTTP handlers share: errors as ``{"message", "reason"}`` with the right status, bodies that are bounded.

It must never show a traceback, a path or an internal to a client: what isn't one of our own errors is "unhandled" and goes to the log.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import wraps
from http.client import responses
from typing import Any

from jupyter_client.kernelspec import NoSuchKernel
from jupyter_server.auth.decorator import allow_unauthenticated, authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import origin_matches_pat
from tornado import web

from ..protocol import errors
from ..protocol.errors import ElasticError
from . import bodies

STATUS: dict[type[ElasticError], int] = {
    errors.BadRequest: 400,
    errors.SettingError: 400,
    errors.ImpossibleRequest: 400,
    errors.ExecutingError: 409,
    errors.StaleOrderError: 409,
    errors.LeaseError: 409,
    errors.BrokerUnavailable: 503,
    errors.SupervisorLost: 503,
}
BY_REASON = {
    "too_large": 413, "no_such_kernel": 404, "no_such_kernelspec": 404, "no_such_node": 404, "no_such_burst": 404, "kernel_limit": 429,
    "pending": 409, "not_kept": 507, "forbidden": 403, "api_unavailable": 503, "not_python": 400,
}  # fmt: skip
WORDS = {  # where jupyter_server has none of its own
    403: "You are not let in: the token is missing or wrong (send it as the header `Authorization: token ...`), or the gateway was asked "
    "under a name that isn't one of its own (then its log says so).",
    404: "There is nothing at this address. GET /api/kernels, /api/kernelspecs and /api/gpu list what there is.",
    405: "This address can't be asked in this way: it takes other methods.",
    500: "Something went wrong that nobody foresaw; the gateway's log has it.",
}


class Answer(web.HTTPError):
    """One of our own errors on its way to the client."""

    def __init__(self, error: ElasticError) -> None:
        status = BY_REASON.get(error.reason) or next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
        super().__init__(status, str(error))
        self.body = error.to_json()


class NoSuchSpec(Answer, NoSuchKernel):
    """A kernelspec that isn't there, in a form that jupyter_server's own handlers know too."""


def for_stock(error: ElasticError) -> Answer:
    """Where jupyter_server's own handlers ask, which answer 500 to what they don't know."""
    return (NoSuchSpec if error.reason == "no_such_kernelspec" else Answer)(error)


def no_such_kernel() -> Answer:
    return Answer(ElasticError("There is no such kernel: it was shut down, or its server was. Start a new one.", reason="no_such_kernel"))


def rest(method: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Of a handler's method: known users only, allowed ones only, and our errors answered as such."""

    @wraps(method)
    async def answering(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            await method(self, *args, **kwargs)
        except ElasticError as error:
            raise Answer(error) from None

    return web.authenticated(authorized(answering))  # type: ignore[no-any-return,arg-type]


def told(status_code: int, error: BaseException | None) -> dict[str, str]:
    """``{"message", "reason"}`` for whatever ended a request."""
    if isinstance(error, Answer):
        return error.body
    if not isinstance(error, web.HTTPError):
        return {"message": WORDS[500], "reason": "unhandled"}
    phrase = responses.get(status_code, "Error")
    message = (error.log_message or "") % error.args if error.args else (error.log_message or "").replace("%%", "%")
    return {"message": message or error.reason or WORDS.get(status_code, phrase), "reason": phrase.lower().replace(" ", "_")}


class JsonErrors:
    """Of a handler, stock ones too: whatever goes wrong is told in the one form."""

    def write_error(self: Any, status_code: int, **kwargs: Any) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(told(status_code, kwargs.get("exc_info", (None, None))[1])))


class PingsByItself:
    """Of a websocket."""

    def get_websocket_protocol(self: Any) -> Any:
        """jupyter_server gives its ping interval in milliseconds and pings by itself; tornado would take it for seconds."""
        protocol = super().get_websocket_protocol()  # type: ignore[misc]
        if protocol is not None:
            protocol.params.ping_interval = None
        return protocol


class PreFlight:
    """The question that a browser asks without a token before it asks with one. The stock answer allows every origin if any is."""

    @allow_unauthenticated
    def options(self: Any, *args: Any, **kwargs: Any) -> None:
        origin = self.get_origin()
        if origin and self.check_origin_listed(origin):
            self.set_header("Access-Control-Allow-Origin", origin)
            self.set_header("Vary", "Origin")
            self.set_header("Access-Control-Allow-Headers", "accept, content-type, authorization, x-xsrftoken")
            self.set_header("Access-Control-Allow-Methods", "GET, PUT, POST, PATCH, DELETE, OPTIONS")
        else:
            self.clear_header("Access-Control-Allow-Origin")
        self.set_status(204)
        self.finish()

    def check_origin_listed(self: Any, origin: str) -> bool:
        """Whether the administrator has named this origin."""
        if self.allow_origin:
            return self.allow_origin in ("*", origin)
        return bool(self.allow_origin_pat and origin_matches_pat(self.allow_origin_pat, origin))


class Handler(JsonErrors, PreFlight, APIHandler):
    """Its methods are decorated with ``rest`` and raise ``ElasticError``."""

    auth_resource = "kernels"

    def check_xsrf_cookie(self) -> None:
        """Only a browser can be led to a request by a foreign page, and it says where it comes from; programs send none of these."""
        if any(name in self.request.headers for name in ("Cookie", "Origin", "Referer", "Sec-Fetch-Site")):
            super().check_xsrf_cookie()

    def mine(self, user: str) -> bool:
        """Whether the asker may act on kernels of this user. In a user's own server, which has another authorizer, all are theirs."""
        owns = getattr(self.authorizer, "owns", None)
        return owns is None or bool(owns(self.current_user, user))

    def mine_all(self) -> bool:
        """Whether that is so of everybody's kernels."""
        everybodys = getattr(self.authorizer, "all_kernels", None)
        return everybodys is None or bool(everybodys(self.current_user))

    def claimed(self, env: dict[str, str]) -> dict[str, str]:
        """A kernel's environment, with the name of whoever it is for."""
        claims = getattr(self.authorizer, "claims", None)
        return env if claims is None else claims(self.current_user, env)

    def body(self, empty: bool = False) -> dict[str, Any]:
        return bodies.json_object(self.request.body, empty)

    def answer(self, value: Any, status: int = 200) -> None:
        self.set_status(status)
        self.finish(json.dumps(value))


class NowhereHandler(Handler):
    """Every address that nobody serves."""

    async def prepare(self) -> None:
        await super().prepare()
        raise web.HTTPError(404)
