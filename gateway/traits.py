"""The kinds of value that a setting can have: what is a number of what, how large, and how a refusal says so.

It must never know a setting by name, nor its default.
"""

from __future__ import annotations

import math
import re
from typing import Any

from traitlets import Enum, Float, Int, TraitError, Unicode

from .leases.quiet import read_hours

MOST = 1e15  # of anything; more is a slip of the keyboard, and arithmetic would stumble over it


class _Amount:
    """Of a number trait: not negative and within reason, or None where that has a meaning."""

    unit = ""  # as it stands behind "a number"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"min": 0, **kwargs})

    def validate(self: Any, obj: Any, value: Any) -> Any:
        try:
            number = math.nan if isinstance(value, bool) else super().validate(obj, value)
        except TraitError:
            number = math.nan
        if number is None or self.min <= number <= MOST:  # NaN is neither
            return number
        never = ", or None" if self.allow_none else ""
        raise TraitError(f"{type(obj).__name__}.{self.name} can't be {str(value)[:40]!r}: it must be {self.info()}{never}.")

    def info(self: Any) -> str:
        """What it may be, but for None."""
        return f"a {'whole ' if isinstance(self, Int) else ''}number{self.unit} from {self.min:g} to {MOST:g}"


class Seconds(_Amount, Float):
    """A duration."""

    unit = " of seconds"


class Bytes(_Amount, Int):
    """An amount of memory."""

    unit = " of bytes"

    def validate(self, obj: Any, value: Any) -> Any:
        return super().validate(obj, int(value) if isinstance(value, float) and value.is_integer() else value)


class Count(_Amount, Int):
    """A number of things."""


class Share(_Amount, Float):
    """How much of something in proportion to others'."""


class Priority(Int):
    """Who comes before whom: the higher number first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"min": -1000, "max": 1000, **kwargs})

    def validate(self, obj: Any, value: Any) -> Any:
        if isinstance(value, bool):  # to Python it is 0 or 1
            self.error(obj, value)
        return super().validate(obj, value)

    def info(self) -> str:
        return f"a whole number from {self.min} to {self.max}"


class QuietHours(Unicode):
    """Times of day, as ``leases.quiet`` reads them."""

    def validate(self, obj: Any, value: Any) -> Any:
        value = super().validate(obj, value)
        try:
            read_hours(value)
        except ValueError as exc:
            raise TraitError(f"{type(obj).__name__}.{self.name} can't hold: {exc}.") from None
        return value

    def info(self) -> str:
        return 'hours such as "22:00-06:00" or "mon-fri 18:00-08:00 Europe/Vienna; sat,sun 00:00-24:00"'


class Choice(Enum):
    """One of a few words."""

    def validate(self, obj: Any, value: Any) -> Any:
        try:
            return super().validate(obj, value)
        except TraitError:
            *others, last = map(repr, self.values)
            raise TraitError(
                f"{type(obj).__name__}.{self.name} can't be {str(value)[:40]!r}: it must be {', '.join(others)} or {last}."
            ) from None


class Name(Unicode):
    """A name that may stand in a file name and a label: small letters, digits and hyphens, 63 at most."""

    def validate(self, obj: Any, value: Any) -> Any:
        value = super().validate(obj, value)
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", value):
            raise TraitError(f"{type(obj).__name__}.{self.name} is {value!r}: use small letters, digits and hyphens, at most 63.")
        return value
