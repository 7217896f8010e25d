"""The lease rules in force: what the configuration, the policy file and live changes say, put together, and shown with their sources.

Of two that say something of the same level the file counts over the configuration, and a live change over both, until the file says
something else of that setting. Live changes are kept for the brokers to come. It must never leave half of a change in force, nor let
go of rules that hold for some that can't.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from ..leases.levels import GROUP, LEVELS, OF_USERS, QUOTAS, SITE, Levels, Said
from ..leases.quiet import quiet
from ..leases.record import KernelRecord
from ..protocol.errors import BadRequest, ElasticError, SettingError
from ..settings import Leases
from ..stamps import Stamp, stamp
from .live import Key, from_text, listed, merged, standing, to_text
from .policy_file import MEMBERS, MOST, SECTIONS, SETTINGS, SITE_ONLY, Rulebook, read_changes, read_file

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25  # between two looks at the policy file; a change counts at the second look that finds it so, as it may be half written
LIVE = "changed while running"
CHANGES, GROUPS = "policy-changes", "groups"  # names of what is kept
AGAIN = timedelta(seconds=30)  # after which what couldn't be kept is tried again
MOST_USERS = 5000  # whose groups are kept: those who came last


class Memory(Protocol):
    """What outlives a broker; its backend is one."""

    async def recall(self, name: str) -> str: ...

    async def keep(self, name: str, text: str) -> None: ...


class Rules:
    """``in_force`` is given what holds from now on; ``moment`` says what time it is. Raises ``SettingError`` for a file that can't hold:
    at the start nothing holds before it."""

    def __init__(
        self, leases: Leases, in_force: Callable[[Levels], None] = lambda levels: None,
        moment: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:  # fmt: skip
        self.leases, self._in_force, self._moment = leases, in_force, moment
        self._configured = {name: getattr(leases, name) for name in SETTINGS}
        self._path = leases.policy_file
        self._file, self._live = Rulebook(), Rulebook()
        self._groups: dict[str, tuple[str, ...]] = {}  # of each user, by the word of whoever lets them in
        self._stamp: Stamp | None = None  # of what was read, for good or ill
        self._seen: Stamp | None = None  # at the last look
        self.error = ""  # why the file as it is now doesn't count
        self.on_change: Callable[..., None] = lambda action, **fields: None  # told of each change, and of each file that is refused
        if self._path:
            self._stamp = self._seen = stamp(self._path)
            self._file = self._read()
        self.levels = self._put_together(self._file, self._live)
        self._memory: Memory | None = None
        self._kept: dict[str, str] = {}  # what is kept, by name of the text
        self._foreign_groups: dict[str, tuple[str, ...]] = {}  # those of them that only a user's next request would tell anew
        self.unkept = ""  # why live changes are lost as the broker ends
        self._news = False  # something may have to be kept
        self._keeping = asyncio.Lock()  # an older text must not come after a newer one
        self._not_before = datetime.min.replace(tzinfo=UTC)  # it is tried again by itself

    # changing

    def change(self, changes: dict[str, Any], by: str = "") -> None:
        """Let these hold from now on, over file and configuration: all, or none. ``null`` in place of the settings of the site, a flavor, a
        kernelspec, a group or a user takes back the live changes for it. Raises ``BadRequest``."""
        try:
            new = read_changes({key: value if key == "site" else _without_nulls(value) for key, value in changes.items()})
            at = self._moment().isoformat(timespec="seconds").replace("+00:00", "Z")
            self._hold(self._file, merged(self._live, new, _nulls(changes), self._file, by, at))
        except (SettingError, ArithmeticError, ValueError) as exc:
            raise BadRequest(str(exc)) from None
        self.on_change("changed", source="request", by=by or None, changes=changes)

    async def change_and_keep(self, changes: dict[str, Any], by: str = "") -> None:
        """The same, for the brokers to come too; ``unkept`` says why, where that can't be. Raises ``BadRequest``."""
        self.change(changes, by)
        await self._keep()

    def belong(self, groups: Mapping[str, Collection[str]], keep: bool = False) -> None:
        """Who is in which groups by the word of whoever lets them in, besides those whom the file and live changes name. ``keep``: the next
        broker wouldn't know before they come again."""
        told = {user: tuple(theirs) for user, theirs in groups.items()}
        if keep and any(self._foreign_groups.get(user) != theirs for user, theirs in told.items()):  # asked with each request
            self._foreign_groups = {**{user: known for user, known in self._foreign_groups.items() if user not in told}, **told}
            self._news = True
        if any(self._groups.get(user) != theirs for user, theirs in told.items()):
            self._groups.update(told)
            self._put(self._put_together(self._file, self._live, self._site()))

    # keeping

    async def recall(self, memory: Memory) -> None:
        """What the broker before had been told, as far as it can hold; from now on it is kept there. Called once, before any lease."""
        self._memory = memory
        try:
            changes, groups = await memory.recall(CHANGES), await memory.recall(GROUPS)
            self._kept = {CHANGES: changes, GROUPS: groups}
            self._hold(self._file, standing(from_text(changes), self._file))
            known = json.loads(groups) if groups else {}
            self._foreign_groups = {str(user): tuple(map(str, theirs)) for user, theirs in known.items()}
            self.belong({user: theirs for user, theirs in self._foreign_groups.items() if user not in self._groups})
        except (ElasticError, ArithmeticError, ValueError, TypeError, AttributeError) as exc:
            self._kept = {CHANGES: to_text(self._live), GROUPS: ""}  # what is there stays until there is something newer
            self.unkept = f"Changes made while an earlier gateway ran don't count: {exc}"
            log.error("%s", self.unkept)

    async def _keep(self) -> None:
        """What is new since it was last kept."""
        async with self._keeping:
            if not self._news or self._memory is None:
                return
            self._news = False  # what comes from now on is news again
            newest = dict(list(self._foreign_groups.items())[-MOST_USERS:])
            for name, text in ((CHANGES, to_text(self._live)), (GROUPS, json.dumps(newest) if newest else "")):
                if text == self._kept.get(name, ""):
                    continue
                try:
                    await self._memory.keep(name, text)
                except BaseException as exc:
                    self._news = True
                    if not isinstance(exc, ElasticError):
                        raise
                    self._not_before = self._moment() + AGAIN
                    self.unkept = f"Changes are in force and end with this gateway, as they can't be kept: {exc}"
                    log.error("%s", self.unkept)
                    return
                self._kept[name], self.unkept = text, ""

    async def watch(self) -> None:
        """For ever: the policy file is read again when it has changed, quiet hours begin and end, and what is new is kept."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()
            if self._moment() >= self._not_before:
                await self._keep()

    async def look(self) -> None:
        """Once. What two looks find changed in the same way is read."""
        if self._path:
            now = await asyncio.to_thread(stamp, self._path)
            if now == self._seen and now != self._stamp:
                await self._reload(now)
            self._seen = now
        self.time_passed()

    def time_passed(self) -> None:
        """Quiet hours may have begun or ended."""
        books = (self._file, self._live)
        if self.leases.quiet_hours or any("quiet_hours" in said for book in books for said in book.said.values()):
            levels = self._put_together(*books, self._site())
            if levels.each("quiet") != self.levels.each("quiet"):
                self._put(levels)

    async def _reload(self, seen: Stamp | None) -> None:
        self._stamp = seen
        try:
            file = await asyncio.to_thread(self._read)
            self._hold(file, standing(self._live, file))
        except SettingError as exc:
            self.error = str(exc)
            log.error("The policy file doesn't count, and what held before goes on: %s", exc)
            self.on_change("refused", source="file", message=str(exc))
        else:
            self.error = ""
            log.info("The policy file has been read again: %s", self._path)
            self.on_change("changed", source="file")

    def _read(self) -> Rulebook:
        try:
            with open(self._path, encoding="utf-8") as file:
                text = file.read(MOST + 1)
        except (OSError, ValueError) as exc:
            why = getattr(exc, "strerror", None) or "it isn't UTF-8 text"
            raise SettingError(f"The policy file {self._path} (Leases.policy_file) can't be read: {why}.") from None
        if len(text) > MOST:
            raise SettingError(f"The policy file {self._path} (Leases.policy_file) is larger than {MOST} characters.")
        try:
            return read_file(text)
        except SettingError as exc:
            raise SettingError(f"{self._path}, {exc}") from None

    # putting together

    def _hold(self, file: Rulebook, live: Rulebook) -> None:
        """Raises ``SettingError``, and what held goes on."""
        before = self._site()
        wanted = self._over({**self._configured}, file, live)
        try:
            self._set(wanted)
            levels = self._put_together(file, live, wanted)
            self._put(levels)
        except BaseException:
            self._set(before)
            raise
        self._file, self._live, self._news = file, live, True

    def _put(self, levels: Levels) -> None:
        self._in_force(levels)
        self.levels = levels

    def _put_together(self, file: Rulebook, live: Rulebook, site: Mapping[str, Any] | None = None) -> Levels:
        if site is None:
            self._set(site := self._over({**self._configured}, file, live))
        now = self._moment()
        layers: dict[str, dict[str, dict[str, Any]]] = {level: {} for level in LEVELS}
        for level, name in dict.fromkeys([*file.said, *live.said]):
            if level != SITE:
                said = {**file.said.get((level, name), {}), **live.said.get((level, name), {})}
                layers[level][name] = _for_the_book({setting: each.value for setting, each in said.items()}, now)
        members: dict[str, list[str]] = {group: [] for group in layers[GROUP]}
        for name, each in {**file.members, **live.members}.items():
            members[name] = list(each.value)
        for user, groups in self._groups.items():
            for group in groups:
                if user not in members.setdefault(group, []):
                    members[group].append(user)
        return Levels(replace(self.leases.policy(), quiet=quiet(site["quiet_hours"], now)), layers, members)

    def _site(self) -> dict[str, Any]:
        return {name: getattr(self.leases, name) for name in SETTINGS}

    def _set(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            setattr(self.leases, name, value)

    @staticmethod
    def _over(configured: dict[str, Any], file: Rulebook, live: Rulebook) -> dict[str, Any]:
        for book in (file, live):
            configured.update({name: each.value for name, each in book.said.get((SITE, ""), {}).items()})
        return configured

    # showing

    def show(self) -> dict[str, Any]:
        """The site's settings by name; ``flavors``, ``kernelspecs``, ``groups`` and ``users`` with what differs for each; ``file``;
        ``changes`` made while running, which count over it, and ``unkept``: why they end with this broker, "" where they don't."""
        shown: dict[str, Any] = {**self._site(), **{section: {} for section in SECTIONS if section != "site"}}
        sections = {level: section for section, level in SECTIONS.items()}
        for book in (self._file, self._live):
            for (level, name), said in book.said.items():
                if level != SITE:
                    shown[sections[level]].setdefault(name, {}).update({setting: each.value for setting, each in said.items()})
            for name, members in book.members.items():
                shown["groups"].setdefault(name, {})[MEMBERS] = list(members.value)
        shown["file"] = {"path": self._path, "error": self.error} if self._path else None
        shown["changes"] = listed(self._live)
        shown["unkept"] = self.unkept
        return shown

    def explain(self, record: KernelRecord, flavor: str) -> dict[str, Any]:
        """What holds for one kernel and why: of each setting the value, the level and name that it is said for, where it is written,
        and which other values it counts over."""
        settings = {}
        for name in SETTINGS:
            said = self._said(name, record, flavor)
            shown = [{"value": each.value, "level": each.level, "name": each.name, "source": self._source(name, each)} for each in said]
            settings[name] = {**shown[0], "over": shown[1:]}
        return {
            "kernel_id": record.kernel_id, "user": record.user, "groups": self.levels.groups(record.user),
            "kernelspec": record.name, "flavor": flavor, "smallest_holds": list(QUOTAS), "settings": settings,
        }  # fmt: skip

    def _said(self, name: str, record: KernelRecord, flavor: str) -> list[Said]:
        if name in SITE_ONLY:
            return [Said(getattr(self.leases, name), SITE)]
        if name == "quiet_hours":
            return [replace(each, value=self._written(each, name)) for each in self.levels.said("quiet", record.user, record.name, flavor)]
        only_users = name in OF_USERS
        return self.levels.said(name, record.user, "" if only_users else record.name, "" if only_users else flavor)

    def _written(self, said: Said, name: str) -> Any:
        for book in (self._live, self._file):
            if name in (found := book.said.get((said.level, said.name), {})):
                return found[name].value
        return getattr(self.leases, name)

    def _source(self, name: str, said: Said) -> str:
        key = said.level, said.name
        if made := self._live.said.get(key, {}).get(name):
            by, at = getattr(made, "by", ""), getattr(made, "at", "")
            return LIVE + (f" by {by}" if by else "") + (f", {at}" if at else "")
        if written := self._file.said.get(key, {}).get(name):
            return f"{self._path}, line {written.line}"
        return "default" if self._configured[name] == Leases.class_traits()[name].default() else "configuration"


def switch(body: dict[str, Any], name: str) -> bool:
    """True or false from a request. Raises ``BadRequest``."""
    value = body.get(name)
    if not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false.")
    return value


def _for_the_book(said: dict[str, Any], now: datetime) -> dict[str, Any]:
    hours = said.pop("quiet_hours", None)
    return said if hours is None else {**said, "quiet": quiet(hours, now)}


def _nulls(changes: dict[str, Any]) -> list[Key]:
    named = [(section, values) for section, values in changes.items() if section in SECTIONS and section != "site"]
    whole = [(SITE, "")] if "site" in changes and changes["site"] is None else []
    return whole + [
        (SECTIONS[section], name)
        for section, values in named
        if isinstance(values, dict)
        for name, value in values.items()
        if value is None
    ]


def _without_nulls(value: Any) -> Any:
    return {name: each for name, each in value.items() if each is not None} if isinstance(value, dict) else value
