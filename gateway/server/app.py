"""The gateway: a Jupyter server that serves kernels and leases GPUs, and nothing else.

It embeds the broker: started and its kernels found again before the first request is served, stopped without ending a kernel. It must
never open a browser, never ask a question on a terminal, and never take another port than the one it was given.
"""

from __future__ import annotations

import asyncio
import difflib
import errno
import gc
import logging
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

from jupyter_core.application import base_aliases, base_flags
from jupyter_server.serverapp import ServerApp
from jupyter_server.serverapp import flags as server_flags
from tornado.netutil import bind_sockets
from traitlets import default
from traitlets.config import Config, catch_config_error
from traitlets.config.loader import ArgumentError

from .. import __version__, logs
from ..broker.broker import Broker
from ..enterprise import environment as enterprise
from ..protocol.errors import ElasticError, cause
from ..provisioner import ElasticProvisioner
from ..settings import Bursts, ElasticGateway, KubernetesBackend, Leases, LocalBackend, SimulatedGpu, StrictConfigFiles, Usage
from . import embed, hub, strict
from .access import ElasticAuthorizer
from .answers import NowhereHandler
from .auth import ElasticIdentityProvider, kept_token
from .connection import ElasticWebsocketConnection
from .contents import NoContents
from .kernel import ElasticKernelManager
from .kernels import ElasticMappingKernelManager
from .kernelspecs import ElasticKernelSpecManager
from .restarter import ElasticRestarter
from .sessions import ElasticSessionManager

KNOBS = [ElasticGateway, Leases, Usage, Bursts, SimulatedGpu, LocalBackend, KubernetesBackend]
OURS = [
    *KNOBS,
    ElasticProvisioner,
    ElasticMappingKernelManager,
    ElasticKernelManager,
    ElasticRestarter,
    ElasticSessionManager,
    ElasticIdentityProvider,
    ElasticAuthorizer,
    ElasticWebsocketConnection,
]


class ElasticGatewayApp(StrictConfigFiles, ServerApp):
    """``jupyter elastic-gateway``."""

    name = "jupyter-elastic-gateway"
    version = __version__
    description = """Serves Jupyter kernels that hold a GPU only while a cell needs one.

    Connect JupyterLab with `jupyter lab --gateway-url=URL`. Kernels outlive the gateway: one that is stopped or killed and started
    again finds them all. `jupyter elastic-gateway shutdown --kernels` ends them.
    """
    examples = """
    jupyter elastic-gateway                                    # the GPUs of this machine
    jupyter elastic-gateway --ElasticGateway.simulated_gpus=2  # try it without one
    jupyter elastic-gateway --Leases.idle_timeout=60           # release a GPU after a minute without work
    """
    subcommands: dict[str, Any] = {}
    aliases = {
        **base_aliases,
        "ip": "ServerApp.ip",
        "port": "ServerApp.port",
        "sock": "ServerApp.sock",
        "sock-mode": "ServerApp.sock_mode",
        "certfile": "ServerApp.certfile",
        "keyfile": "ServerApp.keyfile",
        "client-ca": "ServerApp.client_ca",
    }
    flags = {**base_flags, "allow-root": server_flags["allow-root"]}
    default_services = ("api", "kernelspecs", "security", "auth")
    classes = [*OURS, *(cls for cls in ServerApp.classes if "Gateway" not in cls.__name__ and "Contents" not in cls.__name__)]

    broker: Broker | None = None
    _of_environment: list[str]  # what is to be told of Enterprise Gateway's variables

    # defaults that differ from a notebook server's

    @default("kernel_manager_class")
    def _kernels(self) -> type:
        return ElasticMappingKernelManager

    @default("session_manager_class")
    def _sessions(self) -> type:
        return ElasticSessionManager

    @default("kernel_spec_manager_class")
    def _kernelspecs(self) -> type:
        return ElasticKernelSpecManager

    @default("contents_manager_class")
    def _contents(self) -> type:
        return NoContents

    @default("identity_provider_class")
    def _identity(self) -> type:
        return ElasticIdentityProvider

    @default("authorizer_class")
    def _authorizer(self) -> type:
        return ElasticAuthorizer

    @default("kernel_websocket_connection_class")
    def _default_kernel_websocket_connection_class(self) -> type:
        return ElasticWebsocketConnection

    @default("port_retries")
    def _port_retries_default(self) -> int:
        return 0

    @default("open_browser")
    def _no_browser(self) -> bool:
        return False

    @default("no_browser_open_file")
    def _no_open_file(self) -> bool:
        return True

    @default("allow_unauthenticated_access")
    def _known_users_only(self) -> bool:
        return False

    @default("max_body_size")
    def _small_bodies(self) -> int:
        return 16 << 20  # nobody uploads to a gateway; websockets have a limit of their own

    # coming up

    @catch_config_error
    def initialize(self, argv: list[str] | None = None, find_extensions: bool = False, **kwargs: Any) -> None:
        super().initialize(argv, find_extensions=find_extensions, **kwargs)

    def load_config_file(self, suppress_errors: bool = True) -> None:
        """Enterprise Gateway's variables come first: files, and the command line again after them, count more."""
        try:
            settings, self._of_environment = enterprise.translate(os.environ)
        except ElasticError as exc:
            self._stop_here(exc)
        self.update_config(Config(settings))
        super().load_config_file(suppress_errors)

    def _create_loader(self, *args: Any, **kwargs: Any) -> Any:
        """Options that nobody knows are errors as well; stock programs go on without them."""
        loader = super()._create_loader(*args, **kwargs)
        loader._handle_unrecognized_alias = self._unknown_option
        return loader

    def _unknown_option(self, name: str) -> None:
        near = difflib.get_close_matches(name, self.aliases, 1)
        raise ArgumentError(f"There is no option --{name}." + (f" Did you mean --{near[0]}?" if near else " --help lists them all."))

    def init_logging(self) -> None:
        """The first step after all configuration is read: nothing may be misspelled, nor have a value that can't be."""
        super().init_logging()
        rooms = logging.getLogger("gateway")  # what broker and backends say belongs into our log
        rooms.parent = self.log
        rooms.setLevel(self.log.level)
        for told in self._of_environment:
            self.log.warning(told)
        try:
            typed = self.cli_config or Config()
            of_hub = hub.settings() if "HubAuth" in self.config else []
            for warning in strict.check(self.config, [*self._classes_inc_parents(), *of_hub], [*OURS, *of_hub], typed):
                self.log.warning(warning)
            files = {path: Path(path).read_text(errors="replace") for path in self.loaded_config_files}
            strict.check_values(self.config, KNOBS, typed, files)
        except ElasticError as exc:
            self._stop_here(exc)
        logs.write_as(ElasticGateway(parent=self).log_format, [self.log])

    def init_configurables(self) -> None:
        try:
            super().init_configurables()
            self.broker = embed.make_broker(self, self.kernel_manager)
            self._keep_token()
            if isinstance(self.identity_provider, ElasticIdentityProvider):
                self.identity_provider.on_groups = self.broker.rules.belong
                self.identity_provider.tell_groups()
        except ElasticError as exc:
            self._stop_here(exc)
        if "database_filepath" not in self.config.get("SessionManager", {}):
            self.session_manager.database_filepath = embed.session_file(self.broker)

    def _keep_token(self) -> None:
        """Where nobody has set a token, that of the last start stands: a Lab that was connected goes on after a restart."""
        provider, file = self.identity_provider, embed.token_file(self.broker)
        if file is None or not provider.token or not getattr(provider, "token_generated", False):
            return
        try:
            provider.token = kept_token(file, provider.token, self.log.warning)
        except OSError as exc:
            self.log.warning("The token can't be kept in %s (%s), so the next start will have another.", file, exc.strerror)
        else:
            self._token_file = file

    def init_webapp(self) -> None:
        self.extra_services = [*embed.SERVICES, *self.extra_services]
        self.tornado_settings["elastic_broker"] = self.broker
        super().init_webapp()
        # jupyter_server's own page for what isn't there stumbles over addresses that aren't text
        self.web_app.wildcard_router.rules[-1].target = NowhereHandler

    def init_signal(self) -> None:
        """One Ctrl-C is enough, since no kernel is lost by it."""
        signal.signal(signal.SIGINT, self._signal_stop)
        signal.signal(signal.SIGTERM, self._signal_stop)
        signal.signal(signal.SIGUSR1, self._signal_info)

    def _signal_stop(self, sig: Any, frame: Any) -> None:
        self.io_loop.add_callback_from_signal(self.log.info, "%s: stopping; kernels go on.", signal.Signals(sig).name)
        self.stop(from_signal=True)

    def _find_http_port(self) -> None:
        """Bound once and kept: a port that is free now may be taken when the broker is up."""
        try:
            self._sockets = bind_sockets(self.port, self.ip)
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE:
                why = f"Port {self.port} is taken: another gateway or program listens on it. Stop that one, or choose another with --port."
            elif exc.errno == errno.EACCES:
                why = f"This user may not listen on port {self.port}: choose one above 1023 with --port."
            else:
                why = f"Can't listen on {self.ip or 'any address'}, port {self.port}: {exc.strerror or exc}. Check --ip and --port."
            self._stop_here(ElasticError(why))
        self.port = self._sockets[0].getsockname()[1]

    def _bind_http_server(self) -> None:
        """Called once the loop runs. First the broker and the kernels that are there already, then requests."""
        self._coming_up = asyncio.ensure_future(self._come_up())

    async def _come_up(self) -> None:
        try:
            self._unregister = await embed.start(self.broker, self.kernel_manager)
        except (ElasticError, OSError) as exc:
            self.log.critical(str(exc) if isinstance(exc, ElasticError) else f"The gateway can't come up: {cause(exc, Path(os.curdir))}.")
            self._failed = True
            self.stop()
            return
        if self.sock:
            super()._bind_http_server()
        else:
            self.http_server.add_sockets(self._sockets)
        count = len(self.kernel_manager.list_kernel_ids())
        self.log.info("Elastic gateway %s serves %s (%d kernels found).", __version__, self._bare_url, count)

    # going down

    async def cleanup_extensions(self) -> None:
        """Stock says how many it shuts down, which puzzles where there is none."""
        if self.extension_manager.extension_apps:
            await super().cleanup_extensions()

    async def cleanup_kernels(self) -> None:
        """Kernels go on; browsers are told to come back."""
        if self.broker is not None:
            await embed.stop(self.broker, self.kernel_manager, self.web_app.settings)

    def start_app(self) -> None:
        """Say where we are, on the terminal and in the file by which the command line finds us."""
        super(ServerApp, self).start()
        if not self.allow_root and hasattr(os, "geteuid") and os.geteuid() == 0:
            self._stop_here(ElasticError("A gateway of root gives everybody who can reach it root's rights. If you mean it: --allow-root"))
        self.write_server_info_file()
        provider = self.identity_provider
        if self._token_file is not None:
            token = f"$(cat {shlex.quote(str(self._token_file))})"  # the log is no place for it, and this line can be run as it stands
        elif getattr(provider, "token_generated", False):
            token = provider.token
        else:
            return
        self.log.critical('\n    jupyter lab --gateway-url=%s --GatewayClient.auth_token="%s"\n', self._bare_url, token)

    @property
    def _bare_url(self) -> str:
        return self.connection_url.rstrip("/")

    def start(self) -> None:
        gc.freeze()  # what is there now stays: a collection that looks at all of it holds everybody up for a tenth of a second
        super().start()
        if self._failed:
            sys.exit(1)

    _failed = False
    _token_file: Path | None = None  # where the token is kept, if it is one of our own making

    def running_server_info(self, kernel_count: bool = True) -> str:
        count = len(self.kernel_manager.list_kernel_ids())
        return f"Elastic gateway {__version__} at {self._bare_url}, {count} kernels"

    def _stop_here(self, error: ElasticError) -> None:
        self.log.critical(str(error))
        self.exit(1)


main = ElasticGatewayApp.launch_instance
