"""The configuration files of a machine: where they are, whether they have changed, and that a broken one stops a program.

It must never go on with half of what a file says.
"""

from __future__ import annotations

from pathlib import Path
from traceback import extract_tb
from typing import Any

from jupyter_core.paths import jupyter_config_path
from traitlets.config import Config, JSONFileConfigLoader, PyFileConfigLoader
from traitlets.config.loader import ConfigFileNotFound

CONFIG_FILES = ("jupyter_config", "jupyter_elastic_gateway_config")  # of one folder the later wins


def machine_config() -> Config:
    """What the machine's configuration files say: ``jupyter_elastic_gateway_config.py`` or ``.json`` on Jupyter's config path.

    For processes that have no server of their own to read them (papermill, the broker). Raises what a broken file raises.
    """
    config = Config()
    for folder in reversed(jupyter_config_path()):
        for name in CONFIG_FILES:
            for loader in (JSONFileConfigLoader(f"{name}.json", path=folder), PyFileConfigLoader(f"{name}.py", path=folder)):
                try:
                    config.merge(loader.load_config())
                except ConfigFileNotFound:
                    continue
    return config


def config_stamp() -> tuple[tuple[str, int, int], ...]:
    """Changes whenever one of the machine's configuration files does, comes or goes."""
    seen = []
    for folder in jupyter_config_path():
        for name in CONFIG_FILES:
            for path in (Path(folder, f"{name}.json"), Path(folder, f"{name}.py")):
                try:
                    found = path.stat()
                except OSError:
                    continue
                seen.append((str(path), found.st_mtime_ns, found.st_size))
    return tuple(seen)


class StrictConfigFiles:
    """Of a Jupyter application: a configuration file that was named and isn't there, or one that can't be read, stops the start. Stock
    programs go on without it."""

    raise_config_file_errors = True

    def load_config_file(self: Any, suppress_errors: bool = False) -> None:
        named = self.config_file
        if named and not any(Path(named).expanduser().with_suffix(kind).is_file() for kind in (".py", ".json")):
            self._no_config(f"There is no configuration file {named} (--config): check the path; it must be a .py or a .json file.")
        try:
            super().load_config_file(suppress_errors=False)  # type: ignore[misc]
        except Exception as exc:
            self.log.debug("Configuration that can't be read", exc_info=True)
            at = next((f" ({each.filename}, line {each.lineno})" for each in extract_tb(exc.__traceback__) if each.name == "<module>"), "")
            self._no_config(f"{named or 'A configuration file'} can't be read: {type(exc).__name__}: {exc}{at}. Mend it and start again.")

    def migrate_config(self) -> None:
        """Nothing of IPython's before Jupyter is ours; stock programs would write into a configuration folder that may be read-only, as
        a mounted ConfigMap is."""

    def _no_config(self: Any, why: str) -> None:
        self.log.critical(why)
        self.exit(1)
