"""One GPU, one broker, one kernel: two machine-wide lock files for each GPU, whatever Unix user holds them.

``UUID.lock`` is held by the broker that leases the GPU, ``UUID.use`` by the supervisor whose kernel is on it. Each is a flock, so it
ends with the process that holds it, however that ends, and lasts while that process lives, however silent it is. What stands in the
file tells people who holds it, and stays where that one was killed; it may be forged and must never be trusted, nor may a file or link
that somebody planted ever be followed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .errors import SettingError

_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
_SHARED = Path("/run/lock")

LEASE, USE = "lock", "use"  # kinds: of brokers, of supervisors


def default_folder() -> Path:
    """The same for every user of this machine: below /run/lock where everybody may write there, else below /tmp."""
    try:
        open_to_all = (_SHARED.stat().st_mode & 0o1777) == 0o1777
    except OSError:
        open_to_all = False
    return (_SHARED if open_to_all else Path("/tmp")) / "jupyter-elastic"


class LockFileError(SettingError):
    """One GPU's lock file can't be used; others may."""


class GpuLocks:
    """The locks of one ``kind`` that this process holds below one folder; ``shared`` ones are for every user of the machine."""

    def __init__(self, folder: Path, shared: bool = True, kind: str = LEASE) -> None:
        self._folder, self._mode, self._kind = folder, 0o1777 if shared else 0o700, kind
        self._held: dict[str, int] = {}

    @property
    def held(self) -> list[str]:
        return list(self._held)

    def acquire(self, uuid: str, who: str, mark: str = "") -> str:
        """Take the lock of ``uuid``: returns "" if it is ours (also if it was), else who holds it, for people. ``mark``: what ``left``
        gives to others should we be killed.

        Raises ``SettingError`` where the folder can't be used.
        """
        if uuid in self._held:
            if self._intact(uuid):
                return ""
            os.close(self._held.pop(uuid))  # somebody removed the file: what we hold protects nothing any more
        path = self._path(uuid)
        while True:
            fd = self._open(path)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _holder(fd)
                os.close(fd)
                return holder
            if _same(fd, path):
                break
            os.close(fd)  # removed between open and lock
        self._held[uuid] = fd
        since = datetime.now(timezone.utc).isoformat(timespec="seconds")
        _write(fd, {"pid": os.getpid(), "who": who, "since": since, "mark": mark})
        return ""

    def holder(self, uuid: str) -> str:
        """Who else holds the lock of ``uuid``, for people; "" where nobody does. Raises ``SettingError``."""
        if uuid in self._held:
            return ""
        fd = self._open(self._path(uuid))
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return ""
        except BlockingIOError:
            return _holder(fd)
        finally:
            os.close(fd)

    def left(self, uuid: str) -> str:
        """The mark of whoever held the lock of ``uuid`` last and was killed; "" where it is held or was let go. Raises ``SettingError``."""
        if uuid in self._held:
            return ""
        fd = self._open(self._path(uuid))
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            mark = _said(fd).get("mark")
            return mark if isinstance(mark, str) else ""
        except (BlockingIOError, ValueError):
            return ""
        finally:
            os.close(fd)

    def release(self, uuid: str, cleared: bool = True) -> None:
        """``cleared``: nothing of the holder is left on it; else the file goes on telling what ``left`` is asked for."""
        fd = self._held.pop(uuid, None)
        if fd is not None:
            if cleared:
                _write(fd, None)
            os.close(fd)

    def release_all(self) -> None:
        for uuid in list(self._held):
            self.release(uuid)

    def _intact(self, uuid: str) -> bool:
        """Whether our lock file is still the one that others would open; also keeps sweepers of old files away from it."""
        fd = self._held[uuid]
        if not _same(fd, self._path(uuid)):
            return False
        try:
            os.utime(fd, (time.time(), time.time()))
        except OSError:
            pass  # another user's file: its age is theirs
        return True

    def _path(self, uuid: str) -> Path:
        if not _FILE.fullmatch(uuid):
            raise SettingError(f"{uuid!r} is no GPU's identifier, so it can't be locked")
        return self._folder / f"{uuid}.{self._kind}"

    def _open(self, path: Path) -> int:
        self._prepare()
        while True:
            # Without O_CREAT first: systems refuse that on other users' files in a folder that everybody may write.
            for flags in (os.O_RDWR, os.O_RDONLY):
                try:
                    return _regular(os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), path)
                except FileNotFoundError:
                    break
                except OSError as exc:
                    if exc.errno != errno.EACCES or flags == os.O_RDONLY:
                        raise LockFileError(
                            f"{path}, a GPU's lock, can't be opened ({exc.strerror}): {_owner(path)} has to remove it"
                        ) from None
            try:
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            except FileExistsError:
                continue
            except OSError as exc:
                raise SettingError(f"{path}, a GPU's lock, can't be made ({exc.strerror}): set LocalBackend.lock_dir to another.") from None
            if self._mode & stat.S_ISVTX:
                os.fchmod(fd, 0o666)  # whatever the umask
            return fd

    def _prepare(self) -> None:
        try:
            self._folder.mkdir(mode=0o700)
            self._folder.chmod(self._mode)
        except FileExistsError:
            pass
        except OSError as exc:
            raise SettingError(f"the folder {self._folder} can't be made ({exc.strerror}): set LocalBackend.lock_dir to another.") from None
        seen = self._folder.lstat()
        open_to_all = seen.st_mode & 0o022
        if not stat.S_ISDIR(seen.st_mode) or (open_to_all and not seen.st_mode & stat.S_ISVTX):
            raise SettingError(f"{self._folder} isn't a folder in which locks are safe: it needs mode 1777, or set LocalBackend.lock_dir.")


def _regular(fd: int, path: Path) -> int:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise LockFileError(f"{path} isn't a file, so it can't be a GPU's lock: {_owner(path)} has to remove it")
    return fd


def _owner(path: Path) -> str:
    """Who may remove it from a folder that everybody may write."""
    try:
        return f"the user with number {path.lstat().st_uid}, or root,"
    except OSError:
        return "somebody"


def _same(fd: int, path: Path) -> bool:
    try:
        there = path.lstat()
    except OSError:
        return False
    ours = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def _write(fd: int, holder: dict[str, object] | None) -> None:
    try:
        os.ftruncate(fd, 0)
        if holder:
            os.pwrite(fd, json.dumps(holder).encode() + b"\n", 0)
    except OSError:
        pass  # another user's file, read-only for us: the lock holds all the same


def _said(fd: int) -> dict[str, Any]:
    """Raises ``ValueError`` where nothing stands there that makes sense."""
    said = json.loads(os.pread(fd, 4096, 0))
    if not isinstance(said, dict):
        raise ValueError("no object")
    return said


def _holder(fd: int) -> str:
    try:
        said = _said(fd)
        text = f"{said['who']} (process {int(said['pid'])}, since {said['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
    return "".join(c for c in text if c.isprintable())[:200]
