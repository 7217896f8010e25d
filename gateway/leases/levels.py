"""Which rule holds for whom: a user's over its groups' over the kernelspec's over the GPU's flavor's over the site's.

Of quotas the smallest holds, whoever says it. Pure; it must never know where a value was written, nor what a kernel does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from .policy import Policy

SITE, FLAVOR, KERNELSPEC, GROUP, USER = LEVELS = ("site", "flavor", "kernelspec", "group", "user")  # the later one holds
QUOTAS = ("gpus_per_user", "gpus_per_kernel")
OF_SITE = ("reserve_after", "usage_half_life", "park_backoff")  # of the queue as a whole, or of the machine
OF_USERS = ("weight",)  # what is shared out among users can't differ between a user's kernels
SETTINGS = tuple(field.name for field in fields(Policy))

Layers = Mapping[str, Mapping[str, Mapping[str, Any]]]  # level, name of the flavor (kernelspec, group, user), setting


@dataclass(frozen=True, slots=True)
class Said:
    """One value that is meant for somebody, and at which level. ``name`` is empty for the site."""

    value: Any
    level: str
    name: str = ""

    @property
    def whose(self) -> str:
        """As people read it: ``group students``."""
        return f"{self.level} {self.name}" if self.name else f"the {self.level}"


class Levels:
    """``site``: what holds where nothing narrower does. ``members``: the users of each group; of two groups of a user the one that
    stands first in ``members`` holds."""

    def __init__(self, site: Policy, layers: Layers | None = None, members: Mapping[str, Collection[str]] | None = None) -> None:
        self.site = site
        self._layers: dict[str, dict[str, Mapping[str, Any]]] = {
            level: {name: values for name, values in (layers or {}).get(level, {}).items() if values} for level in LEVELS[1:]
        }
        self._groups: dict[str, list[str]] = {}
        for group, users in (members or {}).items():
            for user in users:
                self._groups.setdefault(user, []).append(group)
        self._known: dict[tuple[str, str, str], Policy] = {}
        self._weights: dict[str, float] = {}
        self.plain = not any(self._layers.values())
        said = {name for layer in self._layers.values() for values in layer.values() for name in values}
        self.limited = site.gpus_per_user is not None or "gpus_per_user" in said
        self.capped = self.limited or site.gpus_per_kernel is not None or "gpus_per_kernel" in said
        self.ranked = "priority" in said

    def groups(self, user: str) -> list[str]:
        """Those of a user, the one that counts most first."""
        return self._groups.get(user, [])

    def of(self, user: str, kernelspec: str, flavor: str) -> Policy:
        """All that holds for such a kernel of this user."""
        if self.plain:
            return self.site
        layers = self._layers
        key = (
            user if user in layers[USER] or user in self._groups else "",
            kernelspec if kernelspec in layers[KERNELSPEC] else "",
            flavor if flavor in layers[FLAVOR] else "",
        )
        if key not in self._known:
            found = {name: self.said(name, *key)[0].value for name in SETTINGS}
            self._known[key] = replace(self.site, **found)
        return self._known[key]

    def said(self, setting: str, user: str, kernelspec: str, flavor: str) -> list[Said]:
        """Every value of ``setting`` that is meant for such a kernel; the first one holds."""
        where = [(USER, user), *((GROUP, group) for group in self.groups(user)), (KERNELSPEC, kernelspec), (FLAVOR, flavor)]
        found = [
            Said(values[setting], level, name)
            for level, name in where
            if (values := self._layers[level].get(name)) is not None and setting in values
        ]
        found.append(Said(getattr(self.site, setting), SITE))
        if setting in QUOTAS:
            found.sort(key=lambda said: (said.value is None, said.value))
        return found

    def each(self, setting: str) -> dict[tuple[str, str], Any]:
        """Every value that is said of it, by level and name."""
        named = ((level, name, values) for level, layer in self._layers.items() for name, values in layer.items())
        return {(SITE, ""): getattr(self.site, setting), **{(at, name): said[setting] for at, name, said in named if setting in said}}

    def weight(self, user: str) -> float:
        """The user's share in the fair order."""
        if self.plain:
            return self.site.weight
        if user not in self._weights:
            if len(self._weights) > 10_000:
                self._weights.clear()
            self._weights[user] = self.said("weight", user, "", "")[0].value
        return self._weights[user]

    def quotas(self, user: str, kernelspec: str, flavor: str) -> list[Said]:
        """How many GPUs the user may hold by each level's word, the smallest first. That of a flavor counts GPUs of the flavor alone,
        that of a kernelspec those of its kernels."""
        return [said for said in self.said("gpus_per_user", user, kernelspec, flavor) if said.value is not None] if self.limited else []

    def forbids(self, count: int, user: str, kernelspec: str, flavor: str) -> tuple[str, Said] | None:
        """The setting, and whose, by which such a kernel can never have so many GPUs at a time; None: it can."""
        for setting in QUOTAS if self.capped else ():
            said = self.said(setting, user, kernelspec, flavor)[0]
            if said.value is not None and count > said.value:
                return setting, said
        return None


def counts(quota: Said, kernelspec: str, flavor: str) -> bool:
    """Whether what such a kernel holds counts against the quota of its user."""
    return quota.level not in (FLAVOR, KERNELSPEC) or quota.name == (flavor if quota.level == FLAVOR else kernelspec)
