"""What a kernel pod's init container runs: ``python -m gateway.pod.copy TARGET`` puts this code where any image's Python finds it.

``PYTHONPATH=TARGET python -m gateway.pod.supervisor`` then works in an image that has Python >= 3.9 and pyzmq, as any user and from
a read-only mount. cloudpickle comes along, in a folder that is looked into only where an image has none. It must never copy what such
an image can't run.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
ROOMS = ("pod", "protocol", "magics")
FILES = ("__init__.py", "elastic.py")
BESIDE = ("cloudpickle",)  # packages of Python alone that those rooms need


def copy(target: Path) -> None:
    """Raises ``OSError`` where ``target`` can't be written. May be called again: what is there is replaced, file by file."""
    there = target / PACKAGE.name
    target.mkdir(parents=True, exist_ok=True)
    for source, name in files():
        to = there / name
        for folder in (there, *(there / part for part in reversed(name.parents[:-1]))):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)  # whatever the umask: the kernel's container runs as another user
        new = to.with_suffix(".new")
        shutil.copyfile(source, new)
        new.chmod(0o644)
        new.replace(to)


def files() -> Iterator[tuple[Path, Path]]:
    """``(file, its place below the target's package)``."""
    for name in FILES:
        yield PACKAGE / name, Path(name)
    for room in ROOMS:
        for file in sorted((PACKAGE / room).rglob("*.py")):
            yield file, file.relative_to(PACKAGE)
    for package in BESIDE:
        found = importlib.util.find_spec(package)
        for folder in (found and found.submodule_search_locations) or ():
            for file in sorted(Path(folder).glob("*.py")):
                yield file, Path("vendor", package, file.name)


def main(argv: list[str]) -> int:
    if len(argv) != 2:
        print("usage: python -m gateway.pod.copy TARGET", file=sys.stderr)
        return 2
    try:
        copy(Path(argv[1]))
    except OSError as exc:
        print(f"The gateway's code can't be copied to {argv[1]}: {exc}. Mount a volume there that this user may write.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
