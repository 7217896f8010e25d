"""Tells JupyterLab's page, before it is built, that this server has the gateway's API; our face starts there and nowhere else.

It must never load anything of JupyterLab's: this server may be a bare one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_path

OPTION = "elasticGateway"  # in the page's configuration; the extension looks for it
EXTENSION = "jupyter-elastic-gateway"


def switch_on(serverapp: Any) -> None:
    serverapp.web_app.settings.setdefault("page_config_data", {})[OPTION] = "true"
    if not any((Path(folder) / EXTENSION / "package.json").is_file() for folder in jupyter_path("labextensions")):
        serverapp.log.info(
            "JupyterLab won't show who has which GPU: its extension is not in this installation, because there was no npm when it was "
            "built. Install Node.js 20 or newer, and this package again."
        )
