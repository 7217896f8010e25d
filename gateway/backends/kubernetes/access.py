"""How the gateway reaches and convinces an API server: its pod's service account, or a kubeconfig.

The official client reads both and runs login plugins; that happens in a thread, because importing it alone takes a second.
This module must never log or quote what it read.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from collections.abc import Coroutine
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from .errors import ApiDenied, ApiUnavailable

LOGIN = 60.0  # seconds that a kubeconfig's login command may take


@dataclass(frozen=True)
class Access:
    """Everything that a connection needs; made anew when the server no longer accepts it."""

    server: str  # https://host:port, perhaps with a path
    ssl: ssl.SSLContext | bool
    server_hostname: str | None
    proxy: str | None
    certificate: bool  # whether a client certificate speaks for us
    _configuration: Any

    async def headers(self) -> dict[str, str]:
        """The ``Authorization`` header, or none. An in-cluster token is read again once a minute, as kubelets renew it."""
        try:
            token = await self._configuration.get_api_key_with_prefix("BearerToken")
        except Exception as exc:
            raise ApiUnavailable(
                f"The service account's token can't be read ({type(exc).__name__}): is it still mounted into the gateway's pod?"
            ) from None
        return {"Authorization": token.strip()} if token else {}

    def __repr__(self) -> str:
        return f"Access({self.server})"


async def find(context: str | None = None, kubeconfig: str | None = None) -> Access:
    """The access that is there: in a pod its service account, unless a context or kubeconfig is named.

    ``kubeconfig``: paths as in ``$KUBECONFIG``, which is the default, and ``~/.kube/config`` after that. Raises ``ApiDenied`` where
    there is none that can be used.
    """
    return await asyncio.to_thread(_find, context, kubeconfig)


def _find(context: str | None, kubeconfig: str | None) -> Access:
    from kubernetes.aio import config
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import incluster_config

    found = Configuration()
    in_pod = os.environ.get("KUBERNETES_SERVICE_HOST") and os.path.exists(incluster_config.SERVICE_TOKEN_FILENAME)
    if in_pod and not context and not kubeconfig:
        what = "The pod's service account"
        try:
            config.load_incluster_config(client_configuration=found)
        except Exception as exc:
            raise ApiDenied(f"{what} can't be used ({_shown(exc)}): is its token mounted into the gateway's pod?") from None
        return _access(found, what, None)
    paths = kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if not any(os.path.exists(os.path.expanduser(path)) for path in paths.split(os.pathsep) if path):
        raise ApiDenied(f"There is no service account here and no kubeconfig at {paths}: name one with KUBECONFIG or the setting.")
    what = f"The kubeconfig {paths}" + (f" with the context {context!r}" if context else "")
    load = config.load_kube_config(config_file=paths, context=context, client_configuration=found, persist_config=False)
    try:  # a loop of its own: it reads files, and waits for login plugins
        asyncio.run(_bounded(load))
    except TimeoutError:
        raise ApiDenied(f"{what} has a login command that takes longer than {LOGIN:g} s: run it by hand, as it may wait for you.") from None
    except Exception as exc:
        # Not chained: the client's own errors quote the user's section of the file.
        raise ApiDenied(f"{what} can't be used ({_shown(exc)}): see whether `kubectl get pods` works with it.") from None
    return _access(found, what, found.proxy or _proxy(found.host))


async def _bounded(load: Coroutine[Any, Any, Any]) -> None:
    """``load`` within ``LOGIN`` seconds; a login command that isn't done by then is killed, which the client leaves undone."""
    loop, started = asyncio.get_running_loop(), []
    start = loop.subprocess_exec

    async def noted(*args: Any, **kwargs: Any) -> Any:
        transport, protocol = await start(*args, **kwargs)
        started.append(transport)
        return transport, protocol

    loop.subprocess_exec = noted  # type: ignore[method-assign]  # the loop is ours alone
    try:
        await asyncio.wait_for(load, LOGIN)
    finally:
        for transport in started:
            transport.close()


def _proxy(server: str) -> str | None:
    """The environment's proxy, as kubectl takes it: never to this machine itself."""
    url = urlsplit(server)
    host = url.hostname or ""
    try:
        here = ip_address(host).is_loopback
    except ValueError:
        here = host == "localhost"
    return None if here or proxy_bypass(url.netloc.rpartition("@")[2]) else getproxies().get(url.scheme)


def _access(found: Any, what: str, proxy: str | None) -> Access:
    try:
        context = ssl.create_default_context(cafile=found.ssl_ca_cert, cadata=found.ca_cert_data)
        # As kubectl: many clusters' own authorities lack extensions that Python >= 3.13 wants. Signatures and names stay checked.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not found.verify_ssl:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if found.cert_file:
            context.load_cert_chain(found.cert_file, found.key_file)
    except (OSError, ValueError) as exc:
        raise ApiDenied(f"{what} has a certificate or key that can't be read ({type(exc).__name__}): renew it.") from None
    return Access(found.host.rstrip("/"), context, found.tls_server_name, proxy, bool(found.cert_file), found)


def _shown(exc: Exception) -> str:
    """What may be told of an error of the client: never more than the name of what it missed."""
    missed = re.search(r"[Ee]xpected (?:object with name|key) ([\w.:@/-]{1,200}) in", str(exc))
    return f"{type(exc).__name__}: it has no {missed[1]!r}" if missed else type(exc).__name__
