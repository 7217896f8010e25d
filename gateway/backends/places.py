"""Where on this machine the parts of one user's installation find each other: folders, sockets, locks.

Everything lies below one private folder. This module must never follow a folder that somebody else could have put there.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pwd
import stat
import time
from pathlib import Path

from jupyter_core.paths import jupyter_runtime_dir

from ..protocol.errors import SettingError

_LONGEST_SOCKET = 100  # bytes; the system allows 107
RUNTIME_DIR = "LocalBackend.runtime_dir"
_BELOW = len("/k/0123456789abcdef/magic.sock")


class Places:
    """The private folder of the running kernels, made on the way. Raises ``SettingError`` where it can't be had."""

    def __init__(self, runtime_dir: str = "") -> None:
        self.root = _root(runtime_dir)
        self.kernels = private_folder(self.root / "k")
        self.gateways = private_folder(self.root / "gateways")
        self.bursts = private_folder(self.root / "b")
        self.notes = private_folder(self.root / "notes")  # small texts for the brokers to come
        self.starts = private_folder(self.root / "starts")  # those that wait for their turn
        self.locks = self.root / "locks"  # of simulated GPUs, which are nobody else's
        self.broker_socket = self.root / "broker.sock"
        self.broker_lock = self.root / "broker.lock"
        self.broker_log = self.root / "broker.log"
        self.drained = self.root / "drained"  # there while no kernel is to be started on this machine

    def kernel(self, kernel_id: str) -> Path:
        """The folder of one kernel's supervisor."""
        return self.kernels / hashlib.sha1(kernel_id.encode(), usedforsecurity=False).hexdigest()[:16]

    def next_generation(self) -> int:
        """A number larger than any that was given from this folder before."""
        with open(os.open(self.root / "generation", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            text = file.read().strip()
            number = int(text) + 1 if text.isdigit() else int(time.time())  # a torn file: above all that was ever counted, too
            file.seek(0)
            file.write(f"{number}\n")
            file.truncate()
        return number


def user_name() -> str:
    """This Unix user, as people know it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container that runs under a number only
        return str(os.getuid())


def private_folder(path: Path, setting: str = RUNTIME_DIR) -> Path:
    """``path`` as a folder that this user owns and nobody else may enter. ``setting``: what chooses it."""
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        seen = path.lstat()
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
            raise SettingError(f"{path} isn't a folder of this user, so nothing private can be kept there: remove it, or set {setting}.")
        if seen.st_mode & 0o077:
            path.chmod(0o700)
    except OSError as exc:
        raise SettingError(f"the folder {path} can't be used ({exc.strerror}): set {setting} to one that can.") from None
    return path


def _root(runtime_dir: str) -> Path:
    if runtime_dir:
        root = Path(runtime_dir).expanduser().absolute()
        if len(os.fsencode(root)) + _BELOW > _LONGEST_SOCKET:
            most = _LONGEST_SOCKET - _BELOW
            raise SettingError(f"{RUNTIME_DIR} is too long for socket paths: {root}. Choose one of at most {most} bytes.")
    else:
        root = Path(jupyter_runtime_dir()) / "elastic"
        if len(os.fsencode(root)) + _BELOW > _LONGEST_SOCKET:
            root = Path(f"/tmp/jupyter-elastic-{os.getuid()}")
    try:
        root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise SettingError(f"the folder {root.parent} can't be made ({exc.strerror}): set {RUNTIME_DIR} to another.") from None
    return private_folder(root)
