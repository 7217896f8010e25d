"""What jupyter_server answers as it is, but for its errors, which have the form of ours: kernelspecs, status, metrics. And the description
of all that the gateway answers.

It must never change an answer that isn't an error.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from jupyter_server.base.handlers import PrometheusMetricsHandler
from jupyter_server.kernelspecs.handlers import KernelSpecResourceHandler
from jupyter_server.services.api.handlers import APIStatusHandler, IdentityHandler
from jupyter_server.services.kernelspecs.handlers import KernelSpecHandler, MainKernelSpecHandler, kernel_name_regex
from tornado import web

from .answers import Handler, JsonErrors, PreFlight, rest

SWAGGER = Path(__file__).parent / "swagger.yaml"


class KernelSpecsHandler(JsonErrors, PreFlight, MainKernelSpecHandler):
    """All kernelspecs."""


class OneKernelSpecHandler(JsonErrors, PreFlight, KernelSpecHandler):
    """One kernelspec."""


class KernelSpecFileHandler(JsonErrors, KernelSpecResourceHandler):
    """A kernelspec's logo. Programs ask for it, so who isn't known is refused and not sent to a login page."""

    def get_login_url(self) -> str:
        raise web.HTTPError(403)


class StatusHandler(JsonErrors, APIStatusHandler):
    """How long and how busy."""


class MeHandler(JsonErrors, IdentityHandler):
    """Who the asker is."""


class MetricsHandler(JsonErrors, PrometheusMetricsHandler):
    """For Prometheus."""


class SwaggerHandler(Handler):
    """This interface, for programs that make clients of such a description. The addresses are Enterprise Gateway's."""

    auth_resource = "api"

    @rest
    async def get(self, form: str) -> None:
        text = SWAGGER.read_text()
        self.set_header("Content-Type", f"application/{form}")
        self.finish(text if form == "yaml" else json.dumps(yaml.safe_load(text) | {"basePath": self.base_url}))


default_handlers = [
    (r"/api/swagger\.(json|yaml)", SwaggerHandler),
    (r"/api/status", StatusHandler),
    (r"/api/me", MeHandler),
    (r"/metrics", MetricsHandler),
    (r"/api/kernelspecs", KernelSpecsHandler),
    (rf"/api/kernelspecs/{kernel_name_regex}", OneKernelSpecHandler),
    (rf"/kernelspecs/{kernel_name_regex}/(?P<path>.*)", KernelSpecFileHandler),
]
