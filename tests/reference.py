"""Writes gateway/settings.md from the settings themselves: ``python -m tests.reference``. Nothing on that page is written by hand."""

from __future__ import annotations

from pathlib import Path

from traitlets import TraitType

from gateway.broker.policy_file import SETTINGS, SITE_ONLY
from gateway.leases.levels import OF_USERS, QUOTAS
from gateway.server.app import OURS
from gateway.settings import Bytes, Leases, Seconds

PAGE = Path(__file__).parents[1] / "gateway/settings.md"
HEAD = """\
# Settings

Every setting of the gateway, with its unit, its default and why, and what None and 0 mean. This page is made from the settings themselves
by `python -m tests.reference`. On the command line it is `--Class.setting=value`, in `jupyter_elastic_gateway_config.py`
`c.Class.setting = value`. Settings of `Leases` may also stand in the policy file and be changed while the gateway runs.
"""


def page() -> str:
    parts = [HEAD]
    for cls in OURS:
        own = [(name, each) for name, each in cls.class_traits(config=True).items() if each.this_class.__module__.startswith("gateway.")]
        if own:
            parts.append(f"## {cls.__name__}\n\n{first_line(cls)}\n")
            parts += [entry(cls, name, trait) for name, trait in sorted(own)]
    return "\n".join(parts)


def entry(cls: type, name: str, trait: TraitType) -> str:
    unit = " s" if isinstance(trait, Seconds) else " bytes" if isinstance(trait, Bytes) else ""
    value = trait.default()
    shown = f"`{value!r}`" + (unit if value is not None else "")
    lines = [f"### `{cls.__name__}.{name}`\n", f"Default {shown}." + (f" {levels(name)}" if cls is Leases else ""), ""]
    return "\n".join([*lines, " ".join(trait.help.split()), ""])


def levels(name: str) -> str:
    if name not in SETTINGS:
        return ""
    if name in SITE_ONLY:
        return "For the whole site."
    where = "group or user" if name in OF_USERS else "flavor, kernelspec, group or user"
    return f"May differ by {where}" + ("; the smallest holds." if name in QUOTAS else ".")


def first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")


if __name__ == "__main__":
    PAGE.write_text(page())
