"""Container images for tests, built without Docker: pause, a base with Python, a kernel's image, and any Dockerfile of the project.

What is built is kept in the cache under the hash of its recipe. Names of package indexes and certificates are the machine's own: they are
lent to the build and stay out of the image.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .places import HERE, cache, digest

RECIPES = HERE / "recipes"
PAUSE = "localhost/elastic-gateway-pause:test"
BASE = "localhost/elastic-gateway-base:test"
KERNEL = "localhost/elastic-gateway-kernel:test"
COMMANDS = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "cc": "gcc", "unshare": "util-linux"}  # and the packages that bring them
_PACKAGES = "python3,python3-pip,python-is-python3,ca-certificates"
_DEBIAN = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={_PACKAGES}", "--dpkgopt=path-exclude=/usr/share/doc/*",
           "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
           "--customize-hook=rm -f $1/usr/lib/python3*/EXTERNALLY-MANAGED $1/etc/resolv.conf", "bookworm"]  # fmt: skip


class ImageError(Exception):
    """An image could not be built; the message says why and what to do."""


def archives() -> dict[str, Path]:
    """The archives that a cluster needs, by image; they may not have been built yet."""
    debian = digest(repr(_DEBIAN).encode(), _recipe("Dockerfile.base"))
    keys = {
        PAUSE: digest(_recipe("pause.c"), _recipe("Dockerfile.pause")),
        BASE: debian,
        KERNEL: digest(debian.encode(), _recipe("Dockerfile.kernel")),
    }
    return {image: cache() / "images" / f"{_file_name(image)}-{key}.tar" for image, key in keys.items()}


def missing() -> list[str]:
    return [image for image, archive in archives().items() if not archive.exists()]


def build() -> None:
    """Builds what is missing: two or three minutes the first time, most of it downloads."""
    with _locked(cache() / "images.lock"):
        for image in missing():
            archive = archives()[image]
            archive.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
                context = Path(folder)
                dockerfile = RECIPES / f"Dockerfile.{_part(image)}"
                if image == PAUSE:
                    _run(["cc", "-static", "-Os", "-o", str(context / "pause"), str(RECIPES / "pause.c")], "the pause program")
                elif image == BASE:
                    _run([*_DEBIAN, str(context / "root.tar")], "Debian with Python")
                _bud(dockerfile, image, {"BASE": base()} if image == KERNEL else {}, context, archive)


def base() -> str:
    """What a Dockerfile says after ``FROM``, for images that are built on ours."""
    return f"docker-archive:{archives()[BASE]}"


def build_image(dockerfile: Path, tag: str, build_args: Mapping[str, str] | None = None, context: Path | None = None) -> Path:
    """Builds a Dockerfile and returns the archive; ``BASE`` is our base unless ``build_args`` say otherwise.

    ``context`` is the folder that COPY sees: the Dockerfile's own unless given. Steps that were run before are not run again.
    """
    archive = cache() / "images" / f"{_file_name(tag)}.tar"
    with _locked(cache() / "images.lock"):
        if not archives()[BASE].exists():
            raise ImageError("the base image has not been built: run `python -m tests.cluster build`")
        _bud(dockerfile, tag, {"BASE": base(), **(build_args or {})}, context or dockerfile.parent, archive)
    return archive


def _bud(dockerfile: Path, tag: str, build_args: Mapping[str, str], context: Path, archive: Path) -> None:
    driver = "overlay" if _overlay_works() else "vfs"
    storage = cache() / "storage" / driver
    # in a mount namespace of its own, so that none of its mounts is left on the machine
    buildah = ["unshare", "--mount", "buildah", "--root", str(storage), "--runroot", str(storage / "run"), "--storage-driver", driver]
    with tempfile.TemporaryDirectory() as folder:
        lent = [flag for source, target in _lent(Path(folder)) for flag in ("--volume", f"{source}:{target}:ro")]
        args = [flag for name, value in build_args.items() for flag in ("--build-arg", f"{name}={value}")]
        _run([*buildah, "build", "--quiet", "--isolation", "chroot", "--layers", *lent, *args,
              "--file", str(dockerfile), "--tag", tag, str(context)], f"{dockerfile.name} ({tag})")  # fmt: skip
        draft = archive.with_name(archive.name + ".new")
        draft.unlink(missing_ok=True)
        # this kind of archive is never compressed: nodes take it in at once
        _run([*buildah, "push", "--quiet", tag, f"docker-archive:{draft}:{tag}"], f"the archive of {tag}")
        draft.rename(archive)


def _lent(folder: Path) -> Iterator[tuple[Path, str]]:
    """What a build sees of the machine, so that pip finds its index: certificates and pip's configuration."""
    bundle = os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt"
    if os.path.exists(bundle):
        yield Path(bundle), "/etc/ssl/certs/ca-certificates.crt"
    found = subprocess.run(["pip", "config", "list"], capture_output=True, text=True, check=False).stdout if shutil.which("pip") else ""
    lines = ["[global]", "cert = /etc/ssl/certs/ca-certificates.crt"]
    for line in found.splitlines():
        name, _, value = line.partition("=")
        if (setting := name.split(".")[-1]) in ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout"):
            text = value.strip("'\"").replace("\\n", "\n    ")
            lines.append(f"{setting} = {text}")
    configuration = folder / "pip.conf"
    configuration.write_text("\n".join(lines) + "\n")
    yield configuration, "/etc/pip.conf"


def _overlay_works() -> bool:
    """Whether a layer can be mounted over another in the cache: not where the cache itself is such a mount, as in a container."""
    with tempfile.TemporaryDirectory(dir=cache()) as folder:
        for name in ("lower", "upper", "work", "merged"):
            os.mkdir(os.path.join(folder, name))
        mount = ["mount", "-t", "overlay", "overlay", "-o", "lowerdir=lower,upperdir=upper,workdir=work", "merged"]
        return subprocess.run(["unshare", "--mount", *mount], cwd=folder, capture_output=True, check=False).returncode == 0


def _run(command: list[str], what: str) -> None:
    absent = [package for program, package in COMMANDS.items() if shutil.which(program) is None]
    if absent:
        raise ImageError(f"{what} could not be built: install {' '.join(absent)}")
    if os.geteuid() != 0:
        raise ImageError(f"{what} could not be built: it takes root")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise ImageError(f"{what} could not be built; {command[0]} ended with {done.returncode}:\n{last}")


def _recipe(name: str) -> bytes:
    return (RECIPES / name).read_bytes()


def _part(image: str) -> str:
    return image.partition(":")[0].rpartition("-")[2]


def _file_name(tag: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in tag)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
