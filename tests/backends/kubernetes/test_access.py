"""Certificates, contexts and login commands: how the client convinces an API server, and it the client."""

from __future__ import annotations

import asyncio
import base64
import ssl
import subprocess
from pathlib import Path

import pytest

from gateway.backends import processes
from gateway.backends.kubernetes import access
from gateway.backends.kubernetes.api import PODS, KubeApi
from gateway.backends.kubernetes.errors import ApiDenied, ApiUnavailable
from tests.doubles.api_server import ApiServer


def openssl(folder: Path, *args: str) -> None:
    subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and what it has signed for a server at 127.0.0.1 and for a client. As plain as those of many clusters."""
    folder = tmp_path_factory.mktemp("certificates")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl(folder, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=authority", "-days", "2")
    (folder / "server.ext").write_text("subjectAltName=IP:127.0.0.1\n")
    (folder / "client.ext").write_text("extendedKeyUsage=clientAuth\n")
    for who in ("server", "client"):
        openssl(folder, "req", *key, "-keyout", f"{who}.key", "-out", f"{who}.csr", "-subj", f"/CN={who}")
        signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{who}.ext"]
        openssl(folder, "x509", "-req", "-in", f"{who}.csr", "-out", f"{who}.crt", *signed)
    return folder


def server_of(certificates: Path) -> ApiServer:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates / "ca.crt"))
    tls.load_cert_chain(certificates / "server.crt", certificates / "server.key")
    tls.verify_mode = ssl.CERT_OPTIONAL
    return ApiServer(tls)


def data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.parametrize("inline", [True, False], ids=["in the kubeconfig", "in files"])
def test_a_client_certificate_speaks_for_the_gateway(certificates: Path, tmp_path: Path, inline: bool) -> None:
    if inline:
        cluster = {"certificate-authority-data": data(certificates / "ca.crt")}
        user = {"client-certificate-data": data(certificates / "client.crt"), "client-key-data": data(certificates / "client.key")}
    else:
        cluster = {"certificate-authority": str(certificates / "ca.crt")}
        user = {"client-certificate": str(certificates / "client.crt"), "client-key": str(certificates / "client.key")}

    async def story() -> None:
        async with server_of(certificates) as server:
            api = await KubeApi.connect(kubeconfig=server.kubeconfig(tmp_path, cluster, **user))
            assert await api.list(PODS, "ns") == ([], "100")
            await api.close()

    asyncio.run(story())


def test_a_server_whose_certificate_nobody_vouches_for_is_not_spoken_to(certificates: Path, tmp_path: Path) -> None:
    async def story() -> None:
        async with server_of(certificates) as server:
            api = await KubeApi.connect(kubeconfig=server.kubeconfig(tmp_path))
            with pytest.raises(ApiUnavailable, match="isn't trusted"):
                await api.list(PODS, "ns")
            assert not server.tokens_seen
            await api.close()

    asyncio.run(story())


def test_a_certificate_that_cannot_be_read_is_said_as_such(certificates: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.key").write_text("no key")
    user = {"client-certificate": str(certificates / "client.crt"), "client-key": str(tmp_path / "bad.key")}

    async def story() -> None:
        async with server_of(certificates) as server:
            with pytest.raises(ApiDenied, match="can't be read"):
                await KubeApi.connect(kubeconfig=server.kubeconfig(tmp_path, **user))

    asyncio.run(story())


def test_a_context_that_is_not_there_is_named(tmp_path: Path) -> None:
    async def story() -> None:
        async with ApiServer() as server:
            with pytest.raises(ApiDenied, match="elsewhere"):
                await KubeApi.connect("elsewhere", server.kubeconfig(tmp_path))
            api = await KubeApi.connect("here", server.kubeconfig(tmp_path))
            await api.list(PODS, "ns")
            await api.close()

    asyncio.run(story())


def test_a_login_command_that_waits_for_somebody_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "LOGIN", 2.0)
    code = f"echo $$ > {tmp_path}/pid && exec sleep 100"
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", code]}

    async def story() -> None:
        async with ApiServer() as server:
            with pytest.raises(ApiDenied, match="takes longer"):
                await KubeApi.connect(kubeconfig=server.kubeconfig(tmp_path, exec=login))

    asyncio.run(asyncio.wait_for(story(), 30))
    pid = int((tmp_path / "pid").read_text())
    while processes.started(pid) is not None:
        pass
