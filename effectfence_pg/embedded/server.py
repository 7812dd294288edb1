"""A private PostgreSQL that starts when somebody wants it and ends with its last user, however that user ends."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from psycopg import sql
from sqlalchemy import URL

from effectfence_pg.embedded import launching
from effectfence_pg.embedded.accounts import server_account
from effectfence_pg.embedded.binaries import find_binaries
from effectfence_pg.embedded.cluster import USER, data_major
from effectfence_pg.embedded.errors import EmbeddedUnavailable
from effectfence_pg.embedded.folder import POLL_SECONDS, Folder, await_lock
from effectfence_pg.embedded.launching import DATABASE, Answer, Site
from effectfence_pg.embedded.places import make_folder, state_directory, temporary_folder

if TYPE_CHECKING:
    from types import TracebackType

START_SECONDS = 120.0
STOP_SECONDS = 100.0
SIGNALS = {"fast": "SIGINT", "immediate": "SIGQUIT", "kill": "SIGKILL"}


class PrivateServer:
    """A PostgreSQL of our own: one per folder, shared by every process that uses it.

    It listens on the loopback interface only and asks for a password (scram-sha-256) that only the owner of its folder
    can read. Data stay across runs, one folder per major version, unless it is temporary.
    """

    def __init__(
        self,
        data_directory: Path | str | None = None,
        *,
        temporary: bool = False,
        keep_seconds: float | None = None,
        start_seconds: float = START_SECONDS,
    ) -> None:
        """Describe the server; nothing happens yet.

        Args:
            data_directory: The server's folder; the default is one per major version in the user's state directory.
            temporary: Use a new folder, and remove it at the end.
            keep_seconds: Stay without users until nobody has been connected for so long.
            start_seconds: How long `start` waits for the server, its first creation included.
        """
        self._wanted = Path(data_directory).absolute() if data_directory is not None else None
        self._temporary = temporary
        self._keep_seconds = keep_seconds
        self._start_seconds = start_seconds
        self._site: Site | None = None
        self._hold: int | None = None
        self._answer: Answer | None = None

    # Life

    def start(self) -> Self:
        """Use the server: join it when it runs, start it when not.

        Raises:
            EmbeddedUnavailable: It cannot be started, or did not answer in time.
        """
        if self._hold is not None:
            return self
        deadline = time.monotonic() + self._start_seconds
        site = self.site
        hold = site.folder.open_lock("users")
        try:
            await_lock(hold, deadline, shared=True)
            with site.folder.turn(deadline):
                self._write_wish()
                self._answer = launching.join_or_launch(site, deadline)
        except TimeoutError as error:
            os.close(hold)
            raise EmbeddedUnavailable(
                missing=f"{error} in {self._start_seconds:g} s", remedy=f"See {site.folder.log}."
            ) from error
        except BaseException:
            os.close(hold)
            raise
        self._hold = hold
        return self

    def stop(self) -> None:
        """End this use. The server ends when it was the last one and nobody asked to keep it."""
        if self._hold is None:
            return
        # Closing, not unlocking: a forked child that uses the server has a copy, and the lock lasts until that ends.
        os.close(self._hold)
        self._hold = None
        if self._temporary:
            deadline = time.monotonic() + STOP_SECONDS
            while self.folder.path.exists() and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
            self._site = None

    def shut_down(self) -> bool:
        """Stop the server although others may use it. Return whether it ran."""
        deadline = time.monotonic() + STOP_SECONDS
        folder = self.folder
        try:
            with folder.turn(deadline):
                if not folder.locked("supervisor"):
                    return False
                folder.stop.touch()
                folder.await_free("supervisor", deadline)
                folder.stop.unlink(missing_ok=True)
        except TimeoutError as error:
            raise EmbeddedUnavailable(missing=str(error), remedy=f"See {folder.log}.") from error
        return True

    def restart(self, how: Literal["fast", "immediate", "kill"] = "fast") -> None:
        """Restart on the same port: in order, at once (as after a power failure), or by killing the postmaster."""
        deadline = time.monotonic() + self._start_seconds
        draft = self.folder.restart.with_suffix(".new")
        draft.write_text(SIGNALS[how], encoding="utf-8")
        draft.replace(self.folder.restart)
        while self.folder.restart.exists() or not self.running:
            if time.monotonic() > deadline:
                raise EmbeddedUnavailable(missing="the server did not come back", remedy=f"See {self.folder.log}.")
            time.sleep(POLL_SECONDS)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # What it is

    @property
    def site(self) -> Site:
        """Where it is and what runs it, found on first use."""
        if self._site is None:
            self._site = self._locate()
        return self._site

    @property
    def folder(self) -> Folder:
        """The server's folder."""
        return self.site.folder

    @property
    def running(self) -> bool:
        """Whether the server answers now, whoever started it. Asking neither starts it nor keeps it."""
        self._answer = launching.ask(self.site) if self.folder.locked("supervisor") else None
        return self._answer is not None

    @property
    def has_data(self) -> bool:
        """Whether it was ever started here, so that there are data to start it with."""
        return data_major(self.folder) is not None

    @property
    def version(self) -> str:
        """The version that the server reports, such as ``18.6``."""
        return self._started.version

    @property
    def port(self) -> int:
        """The loopback port it listens on."""
        return self._started.port

    @property
    def url(self) -> str:
        """SQLAlchemy's URL of the database ``effectfence``, password included."""
        return self.url_for(DATABASE)

    def url_for(self, database: str) -> str:
        """The URL of another database of this server."""
        password = self.folder.password.read_text(encoding="utf-8")
        url = URL.create("postgresql+psycopg", USER, password, "127.0.0.1", self.port, database)
        return url.render_as_string(hide_password=False)

    # Databases

    def create_database(self, name: str, *, template: str | None = None) -> str:
        """Create a database, as a copy of `template` if named, and return its URL."""
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template is not None:
            statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        with launching.connect(self.folder, self.port) as connection:
            connection.execute(statement)
        return self.url_for(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, with the sessions in it."""
        with launching.connect(self.folder, self.port) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    # Inside

    @property
    def _started(self) -> Answer:
        if self._answer is None:
            raise EmbeddedUnavailable(missing="the server does not run", remedy="Call start() first.")
        return self._answer

    def _locate(self) -> Site:
        account = server_account(self._wanted / "data" if self._wanted else None)
        copies = state_directory(account) / "binaries"
        if self._temporary:
            return Site(temporary_folder(account), find_binaries(account, copies), account, temporary=True)
        if self._wanted is not None:
            folder = make_folder(self._wanted, account)
            return Site(folder, find_binaries(account, copies, major=data_major(folder)), account)
        binaries = find_binaries(account, copies)
        folder = make_folder(state_directory(account) / f"postgresql-{binaries.major}", account)
        return Site(folder, binaries, server_account(folder.data))

    def _write_wish(self) -> None:
        keep = self.folder.keep
        if self._keep_seconds is not None:
            keep.write_text(f"{self._keep_seconds}", encoding="utf-8")
        elif not self.folder.locked("supervisor"):
            keep.unlink(missing_ok=True)  # left by a server whose supervisor was killed


def private_server(
    data_directory: Path | str | None = None, *, temporary: bool = False, keep_seconds: float | None = None
) -> PrivateServer:
    """A server for a ``with`` statement: used inside, and gone afterwards when nobody else uses it."""
    return PrivateServer(data_directory, temporary=temporary, keep_seconds=keep_seconds)
