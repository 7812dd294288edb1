"""Commands of Python that start at once, for tests that start many: each is forked from a process that has imported its libraries.

A command so started is a process of its own, and the code is the same: it has the arguments, the environment, the folder
and the streams of whoever started it, and ends as it would. Only the imports are not made again, which take most of the
processor time of a short command. What a fresh interpreter does is tested with fresh ones.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LAUNCHER = Path(__file__).with_name("launch.py")
READY = "ready\n"
IMPORTED = (
    "effectfence_pg.cli.app",
    "effectfence_pg.gateway.charges",
    "effectfence_pg.gateway.demo",
    "effectfence_pg.gateway.probe",
    "effectfence_pg.gateway.server",
    "effectfence_pg.mcp.server",
    "tests.support.witness",
    "uvicorn",
)


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of Python with these arguments."""
    return [sys.executable, "-I", "-S", str(LAUNCHER), _address(), module, *arguments]


@functools.cache
def _address() -> str:
    folder = tempfile.mkdtemp()
    address = f"{folder}/warm"
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, address], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    owner = os.getpid()

    def end() -> None:
        if os.getpid() == owner:
            process.communicate()
            shutil.rmtree(folder)

    atexit.register(end)
    assert process.stdout
    assert process.stdout.readline() == READY
    return address


class Warm:
    """Forks until the process that made it is gone."""

    def __init__(self, address: str) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(address)
        self.listener.listen(64)
        self.ends, wake = socket.socketpair()
        for end in (self.ends, wake):
            end.setblocking(False)
        self.wake = wake
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self.running: dict[int, socket.socket] = {}
        """The processes, and where whoever started one hears of it."""
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(self.ends, selectors.EVENT_READ)
        self.selector.register(0, selectors.EVENT_READ)

    def serve(self) -> dict[str, Any] | None:
        """What this process is to do, in a process that was forked; None when it is over."""
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.listener:
                    if asked := self._fork():
                        return asked
                elif key.fileobj is self.ends:
                    self._reap()
                elif key.fileobj == 0:
                    for process in self.running:
                        os.kill(process, signal.SIGKILL)
                    return None
                else:
                    self._left(key.data)

    def _fork(self) -> dict[str, Any] | None:
        link, _ = self.listener.accept()
        head, streams, _, _ = socket.recv_fds(link, 8, 3)
        text, some = b"", head
        while some and len(text) < int.from_bytes(head, "big"):
            text += (some := link.recv(65_536))
        if not some:
            # Killed while it asked.
            for stream in streams:
                os.close(stream)
            link.close()
            return None
        process = os.fork()
        if not process:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            for end in (link, self.listener, self.ends, self.wake, *self.running.values()):
                end.close()
            self.selector.close()
            for stream in streams:
                os.close(stream)
            return json.loads(text)
        for stream in streams:
            os.close(stream)
        self.running[process] = link
        self.selector.register(link, selectors.EVENT_READ, process)
        _say(link, process)
        return None

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.ends.recv(4096)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                process, status = ended
                link = self.running.pop(process)
                _say(link, os.waitstatus_to_exitcode(status))
                with contextlib.suppress(KeyError):
                    self.selector.unregister(link)
                link.close()

    def _left(self, process: int) -> None:
        """Nobody waits for it any more."""
        if process in self.running:
            self.selector.unregister(self.running[process])
            os.kill(process, signal.SIGKILL)


def _say(link: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):
        link.sendall(number.to_bytes(8, "big", signed=True))


def become(asked: dict[str, Any]) -> None:
    """Run it as the interpreter would."""
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "utf-8").partition(":")
    sys.stdin = os.fdopen(0, encoding=encoding, errors=errors or None, closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding=encoding, errors=errors or None, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding=encoding, errors="backslashreplace", closefd=False)
    module, *arguments = asked["arguments"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    warm = Warm(sys.argv[1])
    sys.stdout.write(READY)
    sys.stdout.flush()
    if asked := warm.serve():
        become(asked)


if __name__ == "__main__":
    main()
