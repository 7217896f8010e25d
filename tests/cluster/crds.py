"""CustomResourceDefinitions of others, as their own projects publish them: from their Go modules, into the cache.

They aren't copied into this repository. Volcano's module has the types alone, of which its project generates them; so do we.
"""

from __future__ import annotations

import fcntl
import functools
import json
import shutil
import subprocess
import sys
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from .build import BuildError, find_go
from .places import HERE, cache, digest

BUILD = "run `python -m tests.cluster crds` once (Go, a minute)"


@dataclass(frozen=True)
class Source:
    """A module as the proxy has it, and the file in it."""

    module: str
    version: str
    sum: str
    file: str


SOURCES = {
    "jobset": Source("sigs.k8s.io/jobset", "v0.10.1", "h1:u8QKifNsrWVrlRFe6w2ofYTqFT9ma2DRHxfeB2m9xyU=",
                     "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"),
    "trainjob": Source("github.com/kubeflow/trainer/v2", "v2.1.0", "h1:jRABD9ZYToamNH2atHze3L/VC/v6KCAqUEqsOQOjVTg=",
                       "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml"),
    "trainingruntime": Source("github.com/kubeflow/trainer/v2", "v2.1.0", "h1:jRABD9ZYToamNH2atHze3L/VC/v6KCAqUEqsOQOjVTg=",
                              "manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml"),
    "rayjob": Source("github.com/ray-project/kuberay/ray-operator", "v1.5.0", "h1:KCjCQ7PSsvs9Ke+90CZbbs498nuaIJ/JkXk4vd54EVg=",
                     "config/crd/bases/ray.io_rayjobs.yaml"),
    "mpijob": Source("github.com/kubeflow/mpi-operator", "v0.6.0", "h1:RzzG03oyQIiHe/SH2k19N+Hp4QkxEsG2l9G1T7US+ys=",
                     "manifests/base/kubeflow.org_mpijobs.yaml"),
}  # fmt: skip
VOLCANO = HERE / "go" / "volcano"
OPTIONS = "crd:crdVersions=v1,generateEmbeddedObjectMeta=true,maxDescLen=0"  # as Volcano's own Makefile has them
_TYPES = "volcano.sh/apis/pkg/apis/batch/v1alpha1"
NAMES = (*SOURCES, "volcano")


def folder() -> Path:
    return cache() / f"crds-{digest(repr((SOURCES, OPTIONS)).encode(), *((VOLCANO / each).read_bytes() for each in ('go.mod', 'go.sum')))}"


def crd(name: str) -> dict[str, Any]:
    """Raises ``FileNotFoundError`` where the cache lacks it; ``BUILD`` says what to do."""
    found: dict[str, Any] = json.loads((folder() / f"{name}.json").read_text())
    return found


def build() -> Path:
    """Fetches what is missing. Raises ``BuildError``."""
    cache().mkdir(parents=True, exist_ok=True)
    target = folder()
    with open(target.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_dir():
            return target
        draft = target.with_suffix(".unfinished")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        go = find_go()
        for name, source in SOURCES.items():
            _write(draft / f"{name}.json", (_fetched(go, source) / source.file).read_text())
        print("Generating Volcano's CRD ...", file=sys.stderr, flush=True)
        _run([go, "tool", "controller-gen", OPTIONS, f"paths={_TYPES}", f"output:dir={draft}"], VOLCANO)
        [made] = draft.glob("batch.volcano.sh_jobs.yaml")
        _write(draft / "volcano.json", made.read_text())
        draft.rename(target)
    return target


def _fetched(go: str, source: Source) -> Path:
    told = json.loads(_run([go, "mod", "download", "-json", f"{source.module}@{source.version}"], Path("/")))
    if told["Sum"] != source.sum:
        raise BuildError(f"{source.module} {source.version} isn't what it was: its sum is {told['Sum']}")
    return Path(told["Dir"])


def _write(path: Path, text: str) -> None:
    path.write_text(json.dumps(yaml.safe_load(text)))


def _run(command: list[str], where: Path) -> str:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command[:4])} failed (it needs a Go module proxy or GOPROXY=direct):\n{done.stderr[-2000:]}")
    return done.stdout


@functools.cache
def validator(name: str, version: str) -> jsonschema.Draft202012Validator:
    """Stricter than the CRD's own schema: what it doesn't name is an error, where an API server would drop it silently."""
    [found] = [each for each in crd(name)["spec"]["versions"] if each["name"] == version]
    whole = _json_schema(found["schema"]["openAPIV3Schema"])
    whole["properties"] |= {"metadata": {"type": "object"}}
    return jsonschema.Draft202012Validator(whole)


def _json_schema(node: dict[str, Any]) -> dict[str, Any]:
    made = {key: deepcopy(value) for key, value in node.items() if not key.startswith("x-kubernetes") and key != "default"}
    if node.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    for key, value in node.get("properties", {}).items():
        made["properties"][key] = _json_schema(value)
    if isinstance(node.get("additionalProperties"), dict):
        made["additionalProperties"] = _json_schema(node["additionalProperties"])
    elif node.get("type") == "object" and not node.get("x-kubernetes-preserve-unknown-fields"):
        made["additionalProperties"] = False
    if isinstance(node.get("items"), dict):
        made["items"] = _json_schema(node["items"])
    return made
