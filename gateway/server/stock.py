"""What jupyter_server answers as it is, but for its errors, which have the form of ours: kernelspecs, status, metrics.

It must never change an answer that isn't an error.
"""

from __future__ import annotations

from jupyter_server.base.handlers import PrometheusMetricsHandler
from jupyter_server.kernelspecs.handlers import KernelSpecResourceHandler
from jupyter_server.services.api.handlers import APIStatusHandler, IdentityHandler
from jupyter_server.services.kernelspecs.handlers import KernelSpecHandler, MainKernelSpecHandler, kernel_name_regex
from tornado import web

from .answers import JsonErrors, PreFlight


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


default_handlers = [
    (r"/api/status", StatusHandler),
    (r"/api/me", MeHandler),
    (r"/metrics", MetricsHandler),
    (r"/api/kernelspecs", KernelSpecsHandler),
    (rf"/api/kernelspecs/{kernel_name_regex}", OneKernelSpecHandler),
    (rf"/kernelspecs/{kernel_name_regex}/(?P<path>.*)", KernelSpecFileHandler),
]
