"""MPI across pods that have no ssh: ``python -m gateway.pod.burst.mpi_door run | serve | call``.

``mpirun`` runs in rank 0's pod and starts what it needs in the others through ``call`` in ssh's place; there ``serve`` runs that one
command. Both know one another by the certificate made for this burst. It must never run a command of anybody who doesn't have its key.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PATIENCE = 60.0  # seconds for another pod's door to open
RETRY = 0.1
CHUNK = 1 << 16
MOST = 1 << 20  # bytes of a command


def run(argv: list[str]) -> int:
    """``mpirun`` as the image has it, in this process's place; returns only where there is none."""
    mpirun = shutil.which("mpirun")
    if mpirun is not None:
        os.execv(mpirun, [mpirun, *argv])
    print("The engine mpi needs mpirun on the PATH of the workers' image: Open MPI or MPICH.", file=sys.stderr)
    return 1


def serve(folder: Path, port: int) -> int:
    """The one command that rank 0's pod sends, as ssh would run it; its end is this one's."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, folder)
    with socket.create_server(("", port)) as door:
        while True:
            caller = door.accept()[0]
            try:
                caller.settimeout(PATIENCE)
                line = context.wrap_socket(caller, server_side=True)
                command = _read(line)
            except (OSError, ValueError):  # a stranger
                caller.close()
                continue
            return _serve(line, command)


def call(folder: Path, port: int, words: list[str]) -> int:
    """In ssh's place: a host and a command, which may come after options of ssh's."""
    while words and words[0].startswith("-"):
        words = words[1:]
    host, command = words[0], " ".join(words[1:])
    with _called(_context(ssl.PROTOCOL_TLS_CLIENT, folder), host, port) as line:
        data = json.dumps(command).encode() + b"\n"
        line.sendall(data)
        heard = b""
        while chunk := line.recv(CHUNK):
            *lines, heard = (heard + chunk).split(b"\n")
            for each in lines:
                said = json.loads(each)
                if "code" in said:
                    return int(said["code"])
                sys.stdout.write(said["text"])
                sys.stdout.flush()
    return 255  # as ssh says that its line is gone


def _serve(line: ssl.SSLSocket, command: str) -> int:
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=False,
    )  # fmt: skip
    assert process.stdout is not None
    line.settimeout(None)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            selector.register(line, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if process.stdout in ready:
                    chunk = os.read(process.stdout.fileno(), CHUNK)
                    if not chunk:
                        break
                    _say(line, text=chunk.decode("utf-8", "replace"))
                elif line in ready and not line.recv(CHUNK):  # nobody waits for it any more
                    process.send_signal(signal.SIGTERM)
                    break
        code = process.wait()
        _say(line, code=code if code >= 0 else 128 - code)
    except OSError:
        process.terminate()
        process.wait()
    return 0


def _say(line: ssl.SSLSocket, **said: Any) -> None:
    line.sendall(json.dumps(said).encode() + b"\n")


def _read(line: ssl.SSLSocket) -> str:
    data = b""
    while not data.endswith(b"\n"):
        chunk = line.recv(CHUNK)
        if not chunk or len(data) > MOST:
            raise ValueError("no command")
        data += chunk
    return str(json.loads(data))


def _called(context: ssl.SSLContext, host: str, port: int) -> ssl.SSLSocket:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return context.wrap_socket(socket.create_connection((host, port), PATIENCE))
        except ssl.SSLError:
            raise
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(RETRY)


def _context(kind: Any, folder: Path) -> ssl.SSLContext:
    """Both sides show the one certificate, and take no other."""
    context = ssl.SSLContext(kind)
    context.check_hostname = False  # it is made for the burst, not for a host
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(folder / "engine.crt")
    context.load_cert_chain(folder / "engine.crt", folder / "engine.key")
    return context


def main(argv: list[str]) -> int:
    word, rest = argv[1], argv[2:]
    if word == "run":
        return run(rest)
    folder, port = Path(rest[0]), int(rest[1])
    return serve(folder, port) if word == "serve" else call(folder, port, rest[2:])


if __name__ == "__main__":
    sys.exit(main(sys.argv))
