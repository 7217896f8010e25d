"""Settings that nothing reads are errors, and so are values that can't be: neither must ever be silently without effect.

Pure: it is given the configuration and the classes that could read it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from traitlets import TraitError
from traitlets.config import Config, Configurable

from ..protocol.errors import SettingError


def check(config: Config, classes: Iterable[type[Configurable]], ours: Iterable[type[Configurable]], typed: Config) -> list[str]:
    """Raise ``SettingError`` for a setting that can't have an effect; returns warnings for those that may be for another program.

    ``classes`` are all that this program configures, ``ours`` those that only it has. ``typed``: what came from the command line,
    where every class must be known; a configuration file may be shared with other Jupyter programs.
    """
    known = {parent.__name__: parent for cls in classes for parent in cls.mro() if issubclass(parent, Configurable)}
    strict = {cls.__name__ for cls in ours}
    warnings = []
    for section, values in config.items():
        if not isinstance(values, Config):
            continue
        cls = known.get(section)
        if cls is None:
            near = difflib.get_close_matches(section, strict, 1, 0.75) or (
                difflib.get_close_matches(section, known, 1, 0.75) if section in typed else []
            )
            if near or section in typed:
                raise SettingError(f"There is no setting {section}.{_first(values)}.{_hint(near)}")
            continue
        for name in values:
            trait = cls.class_traits(config=True).get(name)
            if trait is not None:
                continue
            near = difflib.get_close_matches(name, cls.class_trait_names(config=True), 1)
            text = f"There is no setting {section}.{name}.{_hint([f'{section}.{each}' for each in near])}"
            if section in strict or name in typed.get(section, {}):
                raise SettingError(text)
            warnings.append(text)
    return warnings


def check_values(config: Config, classes: Iterable[type[Configurable]], typed: Config, files: Mapping[str, str]) -> None:
    """Raise ``SettingError`` for a value that one of ``classes`` refuses, with the place where it stands: the command line (``typed``), or
    the last of ``files`` (path and text) that speaks of the setting."""
    for cls in classes:
        section = cls.__name__
        for name, value in config.get(section, {}).items():
            try:
                cls(config=Config({section: {name: value}}))
            except TraitError as exc:
                if name in typed.get(section, {}):
                    where = "on the command line"
                else:
                    where = next((f"in {path}" for path, text in reversed(files.items()) if section in text and name in text), "")
                raise SettingError(f"{exc}{f' It is set {where}.' if where else ''}") from None


def _first(values: Config) -> str:
    return next(iter(values), "")


def _hint(near: list[str]) -> str:
    return f" Did you mean {near[0]}?" if near else " `jupyter elastic-gateway --help-all` lists them all."
