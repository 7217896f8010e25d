"""The control plane: etcd, API server, controller manager and scheduler, on the machine itself, at the cluster's own address.

Whoever has the admin's kubeconfig rules the cluster; it lies in a folder that root alone reads.
"""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from .places import NODES, Slot
from .processes import Processes

ADMIN = "admin"


class ControlPlane:
    """The control plane of a slot; also usable by a process that didn't start it."""

    def __init__(self, slot: Slot, binaries: Path, processes: Processes) -> None:
        self.slot = slot
        self.folder = slot.folder / "control-plane"
        self.kubeconfig = self.path(ADMIN)
        self._binaries = binaries
        self._processes = processes

    def start(self) -> None:
        """Starts etcd and the API server; the rest follows by :meth:`complete`."""
        self.folder.mkdir(parents=True, mode=0o700)
        lines = [f'{secrets.token_hex(16)},{user},{user},"{group}"' for user, group in _users()]
        _private(self.folder / "tokens.csv", "\n".join(lines) + "\n")
        key = subprocess.run(
            ["openssl", "ecparam", "-genkey", "-name", "prime256v1", "-noout"], check=True, capture_output=True, text=True
        ).stdout
        _private(self.folder / "service-accounts.key", key)
        # Without word of its progress, as kubeadm too has it told, an API server has no bookmark for a watch of which nothing changes
        etcd = ["etcd", "--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync", "--log-level", "warn",
                "--experimental-watch-progress-notify-interval", "5s",
                "--listen-client-urls", self.slot.etcd, "--advertise-client-urls", self.slot.etcd,
                "--listen-peer-urls", self.slot.etcd_peers, "--initial-advertise-peer-urls", self.slot.etcd_peers,
                "--initial-cluster", f"default={self.slot.etcd_peers}"]  # fmt: skip
        self._processes.start("etcd", etcd, log=self.folder / "etcd.log")
        self.start_api()

    def start_api(self) -> None:
        """Starts the API server, again after :meth:`stop_api` too; :meth:`wait` says when it answers."""
        key = str(self.folder / "service-accounts.key")
        self._run("kube-apiserver", f"--etcd-servers={self.slot.etcd}", f"--bind-address={self.slot.host}", "--secure-port=6443",
                  f"--cert-dir={self.folder}/certificates", f"--service-cluster-ip-range={self.slot.services}",
                  "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
                  f"--service-account-signing-key-file={key}", f"--token-auth-file={self.folder}/tokens.csv",
                  "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
                  "--kubelet-preferred-address-types=InternalIP", "--enable-aggregator-routing=true", "--profiling=false")  # fmt: skip

    def stop_api(self) -> None:
        """The API server is gone from one moment to the next; etcd and everything else go on."""
        self._processes.end("kube-apiserver")

    def complete(self) -> None:
        """Once the API server answers: kubeconfigs for everybody, then controllers and scheduler."""
        self.wait()
        for user, _ in _users():
            _private(self.path(user), json.dumps(self._kubeconfig(user)))
        self._run("kube-controller-manager", f"--kubeconfig={self.path('system:kube-controller-manager')}", "--leader-elect=false",
                  "--secure-port=0", "--use-service-account-credentials=true", "--controllers=*,-node-ipam-controller",
                  f"--service-account-private-key-file={self.folder}/service-accounts.key",
                  f"--root-ca-file={self.folder}/certificates/apiserver.crt",
                  "--node-monitor-period=1s", "--node-monitor-grace-period=16s")  # fmt: skip
        self._run("kube-scheduler", f"--kubeconfig={self.path('system:kube-scheduler')}", "--leader-elect=false", "--secure-port=0")

    def path(self, user: str) -> Path:
        """Where a user's kubeconfig lies."""
        return self.folder / f"{user.removeprefix('system:').replace(':', '-')}.kubeconfig"

    def wait(self, seconds: float = 60) -> None:
        """Returns once the API server says that it is ready."""
        deadline = time.monotonic() + seconds
        while not self.ready():
            if self._processes.pid("kube-apiserver") is None:
                raise RuntimeError(f"the API server ended by itself:\n{_tail(self.folder / 'kube-apiserver.log')}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the API server isn't ready after {seconds:g} s; see {self.folder}/kube-apiserver.log")
            time.sleep(0.05)

    def ready(self) -> bool:
        """Whether the API server answers and says that it is ready."""
        try:
            context = ssl.create_default_context(cafile=str(self.folder / "certificates/apiserver.crt"))
            direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
            with direct.open(f"{self.slot.api}/readyz", timeout=2) as answer:
                return answer.status == 200
        except (OSError, ssl.SSLError, urllib.error.URLError):
            return False

    def _run(self, program: str, *flags: str) -> None:
        self._processes.start(program, [str(self._binaries / program), *flags], log=self.folder / f"{program}.log")

    def _kubeconfig(self, user: str) -> dict[str, object]:
        tokens = {line.split(",")[1]: line.split(",")[0] for line in (self.folder / "tokens.csv").read_text().splitlines()}
        authority = base64.b64encode((self.folder / "certificates/apiserver.crt").read_bytes()).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": self.slot.api, "certificate-authority-data": authority}}],
            "users": [{"name": user, "user": {"token": tokens[user]}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }


def _users() -> Iterator[tuple[str, str]]:
    yield ADMIN, "system:masters"
    yield "system:kube-controller-manager", "system:kube-controller-manager"
    yield "system:kube-scheduler", "system:kube-scheduler"
    yield "system:kube-proxy", "system:kube-proxy"
    for node in NODES:
        yield f"system:node:node-{node}", "system:nodes"


def _private(path: Path, text: str) -> None:
    """Whole or not at all, and for its owner alone."""
    draft = path.with_name(path.name + ".new")
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.rename(path)


def _tail(path: Path, lines: int = 15) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
