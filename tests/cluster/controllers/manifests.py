"""How the controllers are installed: their projects' own manifests, changed in what a test's cluster has otherwise.

They run as pods from images that hold one program; what they request is left out, as nodes here are small.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import build, images

Object = dict[str, Any]
MANIFESTS = "manifests.json"  # beside a program, once both are there
KUEUE_WEBHOOKS = ("job", "jobset", "clusterqueue", "cohort", "resourceflavor", "workload")
FRAMEWORKS = ("batch/job", "jobset.x-k8s.io/jobset")


@dataclass(frozen=True)
class Controller:
    """``folder``: in its Go module, what ``kubectl kustomize`` takes. ``edit``: what else is changed."""

    module: build.Module
    of: str
    folder: str
    namespace: str
    edit: Callable[[list[Object]], list[Object]] = list

    @property
    def image(self) -> str:
        return f"localhost/elastic-gateway-{self.module.name}:{self.module.folder.name}"

    def ready(self) -> bool:
        return (self.module.folder / MANIFESTS).exists()

    def objects(self) -> list[Object]:
        found: list[Object] = json.loads((self.module.folder / MANIFESTS).read_text())
        return found

    def archive(self) -> Path:
        """Of its image. Raises ``ImageError``."""
        return images.build_image(images.RECIPES / "Dockerfile.program", self.image, {"PROGRAM": self.module.name}, self.module.folder)


def prepare(controller: Controller) -> None:
    """Builds what is missing of it, and keeps its manifests beside it. Raises ``BuildError``."""
    folder = build.build(controller.module)
    if controller.ready():
        return
    where = _run([build.find_go(), "list", "-m", "-f", "{{.Dir}}", controller.of], controller.module.source).strip()
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, "module")
        shutil.copytree(Path(where), copy, copy_function=shutil.copyfile, ignore=shutil.ignore_patterns("*.go", "site", "vendor", "docs"))
        for path in [copy, *copy.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        overlay = copy / controller.folder / "kustomization.yaml"  # JobSet is installed by itself
        overlay.write_text("".join(line for line in overlay.read_text().splitlines(True) if "third-party/" not in line))
        text = _run([str(build.KUBERNETES.folder / "kubectl"), "kustomize", str(copy / controller.folder)], copy)
    objects = [each for each in yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if each]
    draft = folder / f"{MANIFESTS}.new"
    draft.write_text(json.dumps(controller.edit([_plain(each, controller.image) for each in objects])))
    draft.rename(folder / MANIFESTS)


def _run(command: list[str], where: Path) -> str:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        raise build.BuildError(f"{' '.join(command[:4])} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def _plain(each: Object, image: str) -> Object:
    if each["kind"] == "Deployment":
        [container] = each["spec"]["template"]["spec"]["containers"]
        container |= {"image": image, "imagePullPolicy": "Never", "resources": {}}
        container["readinessProbe"] |= {"initialDelaySeconds": 0, "periodSeconds": 1}
    return each


def _kueue(objects: list[Object]) -> list[Object]:
    """Jobs and JobSets alone: its webhook of pods would keep every pod of the cluster out while Kueue is away."""
    found = []
    for each in objects:
        if each["kind"] == "APIService":
            continue
        if each["kind"].endswith("WebhookConfiguration"):
            wanted = [f"{letter}{name}.kb.io" for letter in "mv" for name in KUEUE_WEBHOOKS]
            each["webhooks"] = [webhook for webhook in each["webhooks"] if webhook["name"] in wanted]
        if each["kind"] == "ConfigMap" and "controller_manager_config.yaml" in each.get("data", {}):
            config = yaml.safe_load(each["data"]["controller_manager_config.yaml"])
            config["integrations"]["frameworks"] = list(FRAMEWORKS)
            config["featureGates"] = {"ElasticJobsViaWorkloadSlices": True, "VisibilityOnDemand": False}
            each["data"]["controller_manager_config.yaml"] = json.dumps(config)
        found.append(each)
    return found


JOBSET = Controller(build.JOBSET, "sigs.k8s.io/jobset", "config/default", "jobset-system")
KUEUE = Controller(build.KUEUE, "sigs.k8s.io/kueue", "config/default", "kueue-system", _kueue)
TRAINER = Controller(build.TRAINER, "github.com/kubeflow/trainer/v2", "manifests/overlays/manager", "kubeflow-system")
ALL = (JOBSET, KUEUE, TRAINER)
