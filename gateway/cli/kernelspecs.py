"""The kernels that the gateway offers, with the GPUs that each asks for and its profile; ``import DIR`` makes kernelspecs of ours from an
Enterprise Gateway's, and says what it made of each.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from ..enterprise.kernelspecs import image, is_theirs, profile_name, translate
from ..protocol.errors import ElasticError
from . import client, show

SCRIPTS = "scripts"  # theirs, which start kernels; ours need none


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("do", nargs="*", metavar="import DIR", help="translate the kernelspecs in this folder, or the one that it is")
    parser.add_argument("--to", metavar="FOLDER", help="with import: write them here, one folder each; without it they are only shown")
    client.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.do:
        if args.do[0] != "import" or len(args.do) != 2:
            raise ElasticError(f"`{' '.join(args.do)}` is no word that it knows: `import DIR`, or nothing.", reason="bad_usage")
        return bring(Path(args.do[1]), None if args.to is None else Path(args.to), args.json)
    offered = client.connect(args).get("/api/kernelspecs")
    if args.json:
        show.as_json(offered)
        return 0
    default = offered["default"]
    rows = [row(name, each["spec"], name == default) for name, each in sorted(offered["kernelspecs"].items())]
    show.table(("NAME", "SHOWN AS", "LANGUAGE", "GPUS", "PROFILE"), rows, none="This gateway offers no kernel.")
    return 0


def row(name: str, spec: dict[str, Any], default: bool) -> tuple[str, ...]:
    """What a kernelspec doesn't say itself comes from settings, which only the gateway knows."""
    config = (spec.get("metadata") or {}).get("kernel_provisioner", {}).get("config", {})
    shown = f"{spec['display_name']} (default)" if default else spec["display_name"]
    return name, shown, spec["language"], str(config.get("gpus", "default")), str(config.get("profile", "default"))


def bring(source: Path, to: Path | None, as_json: bool) -> int:
    """Translate, show, and write where that is wanted. 1: one of them could not be translated."""
    folders = [source] if (source / "kernel.json").is_file() else sorted(path.parent for path in source.glob("*/kernel.json"))
    if not folders:
        raise ElasticError(f"There is no kernel.json in {source}, nor in a folder of it.", reason="bad_usage")
    made = []
    for folder in folders:
        each = _one(folder)
        made.append(each)
        if to is not None and each["spec"] is not None:
            _write(folder, to / each["name"], each["spec"])
    if as_json:
        show.as_json({"kernelspecs": made})
    else:
        rows = [(each["name"], each["profile"] or "default", each["became"], "; ".join(each["told"])) for each in made]
        show.table(("NAME", "PROFILE", "BECAME", "WHAT TO KNOW"), rows, none="")
        profiles = {each["profile"]: {"image": each["image"]} for each in made if each["profile"]}
        if profiles:
            print(f"\nProfiles that they need (KubernetesBackend.profiles, or the chart's `profiles`):\n{json.dumps(profiles, indent=2)}")
    return int(any(each["spec"] is None for each in made))


def _one(folder: Path) -> dict[str, Any]:
    name, none = folder.name, {"image": "", "profile": "", "spec": None}
    try:
        spec = json.loads((folder / "kernel.json").read_text(encoding="utf-8"))
        theirs = is_theirs(spec)
    except (OSError, ValueError, AttributeError) as exc:
        return {"name": name, "became": "nothing", "told": [f"its kernel.json can't be read: {exc}"], **none}
    if not theirs:
        return {"name": name, "became": "as it was", "told": [], **none, "spec": spec}
    profile = profile_name(image(spec)) if image(spec) else ""
    made = translate(spec, profile)
    became = "nothing" if made.spec is None else "a kernelspec of ours"
    known = {"image": made.image, "profile": profile if made.spec is not None else "", "spec": made.spec}
    return {"name": name, "became": became, "told": made.told, **known}


def _write(source: Path, to: Path, spec: dict[str, Any]) -> None:
    try:
        shutil.copytree(source, to, ignore=shutil.ignore_patterns(SCRIPTS, "kernel.json"), dirs_exist_ok=True)
        (to / "kernel.json").write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")
    except OSError as exc:
        raise ElasticError(f"{to} can't be written: {exc.strerror or exc}.", reason="bad_usage") from None
