"""A proxy on the loopback interface, in front of a PostgreSQL: it counts turns, and cuts connections around a COMMIT.

A turn is what a client sends before it waits: client bytes after server bytes. It is what a round trip costs, counted
instead of timed. Nothing here waits for time to pass: a cut happens at a message, not at a moment.
"""

from __future__ import annotations

import contextlib
import enum
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Self

from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import make_url

from tests.support.servers import libpq_url

COMMIT = b"COMMIT"
CHUNK = 65_536


class Cut(enum.Enum):
    """Where a connection dies."""

    BEFORE_COMMIT = "the messages before the COMMIT reach the server, the COMMIT does not"
    AFTER_COMMIT = "the server has committed, and the client hears nothing of it"


class Messages:
    """Cuts a byte stream of the protocol into messages; the first one of a client has no type."""

    def __init__(self, *, starts_untyped: bool) -> None:
        self.untyped = starts_untyped
        self.rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        self.rest += data
        while True:
            head = 0 if self.untyped else 1
            if len(self.rest) < head + 4:
                return
            end = head + int.from_bytes(self.rest[head : head + 4], "big")
            if len(self.rest) < end:
                return
            message, self.rest = self.rest[:end], self.rest[end:]
            self.untyped = False
            yield message


class Link:
    """One client and its server connection."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.client = client
        self.server = server
        self.asked = Messages(starts_untyped=True)
        self.answered = Messages(starts_untyped=False)
        self.commits: set[bytes] = set()  # the prepared statements that are a COMMIT
        self.begins: set[bytes] = set()  # those that are a BEGIN
        self.writes: set[bytes] = set()  # those that write, and commit by themselves outside of a block
        self.in_block = False
        self.begun = False  # by a simple BEGIN, which only a COMMIT or a ROLLBACK of the same kind ends
        self.waiting_for_client = True
        self.cut: Cut | None = None
        self.committed = False

    def run(self) -> None:
        with selectors.DefaultSelector() as selector, self.client, self.server:
            selector.register(self.client, selectors.EVENT_READ, self._from_client)
            selector.register(self.server, selectors.EVENT_READ, self._from_server)
            with contextlib.suppress(OSError):
                while all(key.data() for key, _ in selector.select()):
                    pass

    def close(self) -> None:
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _from_client(self) -> bool:
        """Pass on what the client says; False ends the connection."""
        data = self.client.recv(CHUNK)
        if not data:
            return False
        if self.waiting_for_client:
            self.waiting_for_client = False
            self.proxy.count_turn()
            if self.proxy.before_turn is not None:
                # A server that is slow to answer; each connection has a thread of its own here.
                self.proxy.before_turn()
        for message in self.asked.feed(data):
            if self.cut is None and message[:1] == b"S":
                # What follows is another transaction; the one that is to be cut keeps what it was.
                self.in_block = False
                self.server.sendall(message)
                continue
            if self._commits(message) and self.cut is None:
                self.cut = self.proxy.take_cut()
                if self.cut is Cut.BEFORE_COMMIT:
                    self.server.close()
                    self.proxy.before_closing()
                    return False
            self.server.sendall(message)
        return True

    def _from_server(self) -> bool:
        """Pass on what the server answers, unless the answer is to be lost; False ends the connection."""
        data = self.server.recv(CHUNK)
        if not data:
            return False
        if self.cut is not Cut.AFTER_COMMIT:
            self.waiting_for_client = True
            self.client.sendall(data)
            return True
        for message in self.answered.feed(data):
            self.committed |= message.startswith(b"C") and (message[5:] == COMMIT + b"\0" or not self.in_block)
            if message.startswith(b"Z"):
                if not self.committed:
                    self.proxy.failures.append("the transaction that was to be cut after its COMMIT did not commit")
                self.proxy.before_closing()
                return False
        return True

    def _commits(self, message: bytes) -> bool:
        """Whether the message runs a COMMIT, or is the preparation of one that will be run."""
        kind, body = message[:1], message[5:]
        if kind == b"Q":
            self.begun = body.startswith(b"BEGIN") or (self.begun and body not in {COMMIT + b"\0", b"ROLLBACK\0"})
            return body == COMMIT + b"\0"
        if kind == b"P":
            name, _, text = body.partition(b"\0")
            for names, is_one in (
                (self.commits, text.startswith(COMMIT + b"\0")),
                (self.begins, text.startswith(b"BEGIN")),
                (self.writes, b"INSERT INTO" in text or b"UPDATE " in text),
            ):
                (names.add if is_one else names.discard)(name)
            return False
        if kind != b"B":
            return False
        name = body.split(b"\0", 2)[1]
        if name in self.begins:
            self.in_block = True
        elif name in self.commits:
            return True
        else:
            return name in self.writes and not (self.in_block or self.begun)
        return False


class Proxy:
    """Listens on a port of its own and passes everything on to the server of a URL, over TCP or a unix socket."""

    def __init__(self, url: str) -> None:
        self.target = conninfo_to_dict(libpq_url(url))
        self.turns = 0
        self.failures: list[str] = []
        self.before_turn: Callable[[], object] | None = None
        self._cuts: list[Cut | None] = []
        self._meanwhile: Callable[[], object] | None = None
        self._lock = threading.Lock()
        self._links: list[Link] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        # Encryption would hide the messages.
        self.url = (
            make_url(url)
            .set(host="127.0.0.1", port=self.port)
            .difference_update_query(["host", "port"])
            .update_query_dict({"sslmode": "disable", "gssencmode": "disable"})
            .render_as_string(hide_password=False)
        )

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        # A listener that is shut down wakes its accept; closing alone would not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        for link in self._links:
            link.close()
        for thread in self._threads:
            thread.join()

    def cut(self, *where: Cut | None, meanwhile: Callable[[], object] | None = None) -> None:
        """Let the next transactions that commit lose their connection there, one after the other; None spares one.

        `meanwhile` is what others do before the client can notice.
        """
        self._cuts.extend(where)
        self._meanwhile = meanwhile

    @property
    def pending(self) -> int:
        """Cuts that were ordered and did not happen yet."""
        return len(self._cuts)

    @contextlib.contextmanager
    def counted(self) -> Iterator[list[int]]:
        """The turns taken inside the `with` statement: a list of one number, filled in at its end."""
        counted: list[int] = []
        before = self.turns
        yield counted
        counted.append(self.turns - before)

    def count_turn(self) -> None:
        with self._lock:
            self.turns += 1

    def take_cut(self) -> Cut | None:
        with self._lock:
            return self._cuts.pop(0) if self._cuts else None

    def before_closing(self) -> None:
        """Let others act."""
        if self._meanwhile is not None:
            try:
                self._meanwhile()
            except Exception as error:
                self.failures.append(f"what others do meanwhile failed: {error!r}")

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                server = self._connect()
            except OSError as error:
                self.failures.append(f"the server cannot be reached: {error}")
                client.close()
                continue
            link = Link(self, client, server)
            self._links.append(link)
            self._start(link.run)

    def _connect(self) -> socket.socket:
        host, port = str(self.target.get("host") or "127.0.0.1"), int(self.target.get("port") or 5432)
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{port}")
            return server
        server = socket.create_connection((host, port))
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server
