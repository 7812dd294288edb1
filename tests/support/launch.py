"""Stands for a command that `tests.support.warm` forks: its arguments, its streams, its signals and its exit status.

It imports next to nothing, so it is there at once. If it is killed, what it stands for is killed.
"""

import json
import os
import signal
import socket
import sys


def heard(link: socket.socket) -> int:
    """A number that is said; nobody is there to say it when the tests are over."""
    said = link.recv(8)
    if len(said) < 8:
        sys.exit("what starts commands is gone")
    return int.from_bytes(said, "big", signed=True)


def main() -> None:
    address, *arguments = sys.argv[1:]
    folder = os.getcwd()  # noqa: PTH109  pathlib takes long to import
    asked = {"arguments": arguments, "folder": folder, "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(address)
        text = json.dumps(asked).encode()
        socket.send_fds(link, [len(text).to_bytes(8, "big")], [0, 1, 2])
        link.sendall(text)
        process = heard(link)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: os.kill(process, number))
        code = heard(link)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
