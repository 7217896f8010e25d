"""What jupyter_server answers as it is, but for its errors, which have the form of ours: kernelspecs, status, metrics. And the description
of all that the gateway answers.

It must never change an answer that isn't an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jupyter_server
import yaml
from jupyter_client.kernelspec import KernelSpec
from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.base.handlers import APIVersionHandler, PrometheusMetricsHandler
from jupyter_server.kernelspecs.handlers import KernelSpecResourceHandler
from jupyter_server.services.api.handlers import APIStatusHandler, IdentityHandler
from jupyter_server.services.kernelspecs.handlers import KernelSpecHandler, MainKernelSpecHandler, kernel_name_regex
from tornado import web

from .. import __version__
from .answers import Handler, JsonErrors, PreFlight

SWAGGER = Path(__file__).parent / "swagger.yaml"


class Offered:
    """The kernelspecs of ``manager`` of which ``may`` says yes, for jupyter_server's handlers."""

    def __init__(self, manager: Any, may: Callable[[dict[str, Any]], bool]) -> None:
        self._manager, self._may = manager, may

    async def get_all_specs(self) -> dict[str, Any]:
        found = await ensure_async(self._manager.get_all_specs())
        return {name: each for name, each in found.items() if self._may(each.get("spec") or {})}

    async def get_kernel_spec(self, name: str) -> KernelSpec:
        """Raises ``KeyError`` for one that isn't there, and a 403 for one that isn't for whoever asks."""
        spec = await ensure_async(self._manager.get_kernel_spec(name))
        if not self._may(spec.to_dict()):
            raise web.HTTPError(403, f"The kernel {name!r} is not for this user: ask whoever runs this gateway.")
        return spec


class ForUser:
    """What users may start, and nothing else. Whoever acts for others sees all, or with ``?user=NAME`` what that user may start."""

    @property
    def kernel_spec_manager(self: Any) -> Any:
        manager, kernels = self.settings["kernel_spec_manager"], self.kernel_manager
        acts_for_others = getattr(self.authorizer, "all_kernels", lambda _user: True)(self.current_user)
        user = self.get_query_argument("user", "") if acts_for_others else self.current_user.username
        if (acts_for_others and not user) or not hasattr(kernels, "may_start"):
            return manager
        return Offered(manager, lambda spec: kernels.may_start(user, spec))


class KernelSpecsHandler(JsonErrors, PreFlight, ForUser, MainKernelSpecHandler):
    """All kernelspecs."""


class OneKernelSpecHandler(JsonErrors, PreFlight, ForUser, KernelSpecHandler):
    """One kernelspec."""


class KernelSpecFileHandler(JsonErrors, KernelSpecResourceHandler):
    """A kernelspec's logo. Programs ask for it, so who isn't known is refused and not sent to a login page."""

    def get_login_url(self) -> str:
        raise web.HTTPError(403)


class VersionHandler(JsonErrors, APIVersionHandler):
    """Which versions answer: of the server below, and as Enterprise Gateway has it of the gateway."""

    @allow_unauthenticated
    def get(self) -> None:
        self.finish(json.dumps({"version": jupyter_server.__version__, "gateway_version": __version__}))


class StatusHandler(JsonErrors, APIStatusHandler):
    """How long and how busy."""


class MeHandler(JsonErrors, IdentityHandler):
    """Who the asker is."""


class MetricsHandler(JsonErrors, PrometheusMetricsHandler):
    """For Prometheus."""


class SwaggerHandler(Handler):
    """This interface, for programs that make clients of such a description. As at Enterprise Gateway, whose addresses these are, it is for
    everybody: it says nothing of the site."""

    @allow_unauthenticated
    def get(self, form: str) -> None:
        text = SWAGGER.read_text()
        told = text if form == "yaml" else json.dumps(yaml.safe_load(text) | {"basePath": self.base_url})
        self.finish(told, set_content_type=f"application/{form}")


default_handlers = [
    (r"/api", VersionHandler),
    (r"/api/swagger\.(json|yaml)", SwaggerHandler),
    (r"/api/status", StatusHandler),
    (r"/api/me", MeHandler),
    (r"/metrics", MetricsHandler),
    (r"/api/kernelspecs", KernelSpecsHandler),
    (rf"/api/kernelspecs/{kernel_name_regex}", OneKernelSpecHandler),
    (rf"/kernelspecs/{kernel_name_regex}/(?P<path>.*)", KernelSpecFileHandler),
]
