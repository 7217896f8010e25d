"""Changes of the policy made while the broker runs: who made each and when, what the file said then, and how they are kept. Pure.

Of file and change the later word holds: once the file says something else of a setting than it did as it was changed, the change is
over. It must never accept from a kept text what a request couldn't say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..leases.levels import SITE
from ..protocol.errors import SettingError
from .policy_file import MEMBERS, SECTIONS, Rulebook, Written, read_changes

_SECTION = {level: section for section, level in SECTIONS.items()}
Key = tuple[str, str]  # level and name


@dataclass(frozen=True)
class Change(Written):
    """``by``: who asked for it, "" where nobody is named; ``at``: in UTC; ``file``: what the file said of it then, () for nothing."""

    by: str = ""
    at: str = ""
    file: tuple[Any, ...] = ()


def merged(live: Rulebook, new: Rulebook, taken_back: list[Key], file: Rulebook, by: str, at: str) -> Rulebook:
    """``live`` with what is ``new``, and without what is taken back."""
    said = {key: dict(values) for key, values in live.said.items() if key not in taken_back}
    members = {name: each for name, each in live.members.items() if (SECTIONS["groups"], name) not in taken_back}
    for key, values in new.said.items():
        for setting, each in values.items():
            said.setdefault(key, {})[setting] = Change(each.value, 0, by, at, _says(file.said.get(key, {}), setting))
    for name, each in new.members.items():
        members[name] = Change(each.value, 0, by, at, _says(file.members, name))
    return Rulebook(said, members)


def standing(live: Rulebook, file: Rulebook) -> Rulebook:
    """Those of which the file says what it said as they were made."""
    said = {
        key: {setting: each for setting, each in values.items() if _stands(each, file.said.get(key, {}), setting)}
        for key, values in live.said.items()
    }
    members = {name: each for name, each in live.members.items() if _stands(each, file.members, name)}
    return Rulebook({key: values for key, values in said.items() if values}, members)


def listed(live: Rulebook) -> list[dict[str, Any]]:
    """As people are shown them: ``for`` and ``name`` whom, ``setting``, ``value``, ``by``, ``at``."""
    return [{name: value for name, value in each.items() if name != "file"} for each in _entries(live)]


def to_text(live: Rulebook) -> str:
    """ "" where there are none."""
    entries = _entries(live)
    return json.dumps({"version": 1, "changes": entries}) if entries else ""


def from_text(text: str) -> Rulebook:
    """Raises ``SettingError`` where that isn't what ``to_text`` makes, or can't hold any more."""
    try:
        entries = json.loads(text)["changes"] if text else []
        live = Rulebook()
        for entry in entries:
            level, name, setting = SECTIONS[entry["section"]], str(entry["name"]), entry["setting"]
            values = {setting: entry["value"]}
            read = read_changes({entry["section"]: values if level == SITE else {name: values}})
            value = read.members[name].value if setting == MEMBERS else read.said[level, name][setting].value
            file = tuple(tuple(each) if setting == MEMBERS else each for each in entry["file"])
            change = Change(value, 0, str(entry["by"]), str(entry["at"]), file)
            if setting == MEMBERS:
                live.members[name] = change
            else:
                live.said.setdefault((level, name), {})[setting] = change
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise SettingError(f"they can't be read ({type(exc).__name__}: {str(exc)[:80]})") from None
    return live


def _entries(live: Rulebook) -> list[dict[str, Any]]:
    found = [(level, name, setting, each) for (level, name), values in live.said.items() for setting, each in values.items()]
    found += [(SECTIONS["groups"], name, MEMBERS, each) for name, each in live.members.items()]
    return [
        {"section": _SECTION[level], "name": name, "setting": setting, "value": each.value, "by": each.by, "at": each.at, "file": each.file}
        for level, name, setting, each in found
        if isinstance(each, Change)
    ]


def _says(written: Mapping[str, Written], setting: str) -> tuple[Any, ...]:
    return (written[setting].value,) if setting in written else ()


def _stands(change: Written, written: Mapping[str, Written], setting: str) -> bool:
    return not isinstance(change, Change) or change.file == _says(written, setting)
