"""The programs of the cluster, built from their Go modules into the cache; the versions stand in ``go/*/go.mod``.

A build that is killed leaves nothing that looks finished, and goes on where it was; two at once wait for each other. Nothing is built
or downloaded inside a test.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from .places import HERE, cache, digest

GO = (1, 24)


class BuildError(Exception):
    """A program could not be built; the message says why and what to do."""


@dataclass(frozen=True)
class Module:
    """A folder with go.mod and go.sum, and what is built from it."""

    name: str
    programs: dict[str, str]  # by name, their packages
    stamp: tuple[str, ...] = ()  # variables that carry the version
    static: bool = False  # programs that are all there is in their image

    @property
    def source(self) -> Path:
        return HERE / "go" / self.name

    @property
    def folder(self) -> Path:
        """Where the programs lie once they have been built."""
        return cache() / digest((self.source / "go.sum").read_bytes(), (self.source / "go.mod").read_bytes())

    def built(self) -> bool:
        return self.folder.is_dir()

    def version(self) -> str:
        package = next(iter(self.programs.values())).partition("/cmd/")[0]
        found = re.search(rf"^\s*(?:require )?{re.escape(package)} (v\S+)", (self.source / "go.mod").read_text(), re.MULTILINE)
        if found is None:
            raise BuildError(f"{self.source}/go.mod doesn't require {package}")
        return found[1]


KUBERNETES = Module(
    "kubernetes",
    {
        name: f"k8s.io/kubernetes/cmd/{name}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
    },
    ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"),
)
HELM = Module("helm", {"helm": "helm.sh/helm/v3/cmd/helm"})

# Controllers that clusters have and a bare one lacks, each for a pod of its own; minutes each, so a test run that wants them says so
JOBSET = Module("jobset", {"jobset": "sigs.k8s.io/jobset"}, static=True)
KUEUE = Module("kueue", {"kueue": "sigs.k8s.io/kueue/cmd/kueue"}, static=True)
TRAINER = Module("trainer", {"trainer": "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"}, static=True)


def build(module: Module) -> Path:
    """Builds what is missing and returns the folder; Kubernetes takes 11 minutes the first time, on two cores, and Helm four."""
    cache().mkdir(parents=True, exist_ok=True)
    folder = module.folder
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if module.built():
            return folder
        draft = folder.with_suffix(".unfinished")
        draft.mkdir(exist_ok=True)
        go = find_go()
        for name, package in module.programs.items():
            if not (draft / name).exists():
                _build(go, module, package, draft / name)
        draft.rename(folder)
    return folder


def find_go() -> str:
    """The go command; raises BuildError where there is none that is new enough."""
    for go in (shutil.which("go"), "/usr/local/go/bin/go"):
        if go and os.path.exists(go):
            found = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False, cwd="/").stdout
            version = re.match(r"go(\d+)\.(\d+)", found)
            if version and (int(version[1]), int(version[2])) >= GO:
                return go
    raise BuildError(f"Kubernetes is built with Go {GO[0]}.{GO[1]} or newer, and none was found: install it from https://go.dev/dl")


def _build(go: str, module: Module, package: str, target: Path) -> None:
    version = module.version()
    major, minor = version[1:].split(".")[:2]
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    stamp = [f"-X {variable}.{name}={value}" for variable in module.stamp for name, value in values.items()]
    draft = target.with_name(target.name + ".new")
    command = [
        go,
        "build",
        "-mod=readonly",
        "-trimpath",
        "-buildvcs=false",
        "-ldflags",
        " ".join(["-s -w", *stamp]),
        "-o",
        str(draft),
        package,
    ]
    began = time.monotonic()
    print(f"Building {target.name} {version} ...", file=sys.stderr, flush=True)
    env = {**os.environ, "CGO_ENABLED": "0"} if module.static else None
    done = subprocess.run(command, cwd=module.source, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        last = "\n".join(done.stderr.splitlines()[-20:])
        raise BuildError(f"{package} could not be built (it needs a Go module proxy or GOPROXY=direct, and 5 GB of disk):\n{last}")
    draft.rename(target)
    print(f"Built {target.name} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
