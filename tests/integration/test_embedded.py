"""What the private server promises to those who use it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from effectfence_pg.embedded import EmbeddedUnavailable, PrivateServer, private_server
from tests.support.holder import eventually, holder, report
from tests.support.servers import libpq_url, occupied, scratch_directory


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    """The folder of a server with data, whose path has a space in it."""
    with scratch_directory() as scratch:
        folder = scratch / "a folder" / "server"
        yield folder
        PrivateServer(folder).shut_down()


def answers(url: str) -> bool:
    try:
        psycopg.connect(libpq_url(url), connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


def ask(url: str, query: str) -> object:
    with psycopg.connect(libpq_url(url), connect_timeout=5) as connection:
        return connection.execute(query).fetchone()[0]


def gone(folder: Path) -> bool:
    """Nothing of the server is alive: not its supervisor, not postgres, not a backend."""
    server = PrivateServer(folder)
    return not server.folder.locked("server") and not server.folder.locked("supervisor")


def processes(folder: Path) -> dict[str, int]:
    return json.loads((folder / "server.json").read_text())


def test_processes_that_start_at_once_share_one_server(cluster: Path) -> None:
    with holder(cluster) as one, holder(cluster) as two, holder(cluster) as three:
        assert len({report(process)["url"] for process in (one, two, three)}) == 1


def test_the_server_lasts_until_its_last_user_and_a_killed_user_counts_as_gone(cluster: Path) -> None:
    with holder(cluster) as first:
        url = report(first)["url"]
        with holder(cluster) as second:
            assert report(second)["url"] == url
            first.kill()
            first.wait()
            assert answers(url)
            second.kill()
            second.wait()
    eventually(lambda: gone(cluster))
    assert not answers(url)


def test_data_are_kept_across_runs(cluster: Path) -> None:
    with private_server(cluster) as server, psycopg.connect(libpq_url(server.url)) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 49 AS dollars")
    eventually(lambda: gone(cluster))
    with private_server(cluster) as server:
        assert ask(server.url, "SELECT dollars FROM kept") == 49


def test_a_killed_supervisor_takes_its_server_along_and_the_next_start_recovers(cluster: Path) -> None:
    with private_server(cluster) as server:
        first = processes(cluster)
        os.kill(first["supervisor"], signal.SIGKILL)
        with private_server(cluster) as again:
            assert processes(cluster)["postmaster"] != first["postmaster"]
            assert ask(again.url, "SELECT 1") == 1
        assert server.running


def test_a_killed_postmaster_is_started_again_on_its_port(cluster: Path) -> None:
    with private_server(cluster) as server:
        first = processes(cluster)
        os.kill(first["postmaster"], signal.SIGKILL)
        eventually(lambda: processes(cluster) != first and server.running)
        assert processes(cluster)["port"] == first["port"]


@pytest.mark.parametrize("how", ["fast", "immediate", "kill"])
def test_a_restart_keeps_the_address(cluster: Path, how: str) -> None:
    with private_server(cluster) as server:
        url, before = server.url, ask(server.url, "SELECT pg_postmaster_start_time()")
        server.restart(how)
        assert server.url == url
        assert ask(url, "SELECT pg_postmaster_start_time()") > before


def test_a_stopped_server_comes_back_at_its_address_unless_something_else_listens_there(cluster: Path) -> None:
    with private_server(cluster) as server:
        url, port = server.url, server.port
    eventually(lambda: gone(cluster))
    with private_server(cluster) as server:
        assert server.url == url
    eventually(lambda: gone(cluster))
    with occupied(port), private_server(cluster) as server:
        elsewhere = server.url
        assert server.port != port
    eventually(lambda: gone(cluster))
    with private_server(cluster) as server:
        assert server.url == elsewhere, "where it was last"


@pytest.mark.parametrize("content", ["{alive}\n{data}\n", "", "not a number\n"])
def test_a_pid_file_that_lies_does_not_keep_the_server_from_starting(cluster: Path, content: str) -> None:
    with private_server(cluster):
        pass
    eventually(lambda: gone(cluster))
    data = cluster / "data"
    (data / "postmaster.pid").write_text(content.format(alive=os.getpid(), data=data))
    with private_server(cluster) as server:
        assert ask(server.url, "SELECT 1") == 1


def test_a_server_that_was_started_by_hand_is_left_alone(cluster: Path) -> None:
    with private_server(cluster) as server:
        site = server.site
    eventually(lambda: gone(cluster))
    pg_ctl = [site.binaries.program("pg_ctl"), "-D", str(cluster / "data"), "-w", "-s"]
    options = "-c listen_addresses='' -k ."
    assert site.account.run([*pg_ctl, "start", "-W", "-l", "/dev/null", "-o", options]).returncode == 0
    try:
        eventually((cluster / "data" / ".s.PGSQL.5432").exists)
        with pytest.raises(EmbeddedUnavailable, match="started by hand"):
            PrivateServer(cluster).start()
    finally:
        assert site.account.run([*pg_ctl, "stop", "-m", "immediate"]).returncode == 0


def test_a_kept_server_ends_when_nobody_has_been_connected_for_the_time_it_was_kept(cluster: Path) -> None:
    with private_server(cluster, keep_seconds=0.4) as server:
        url = server.url
    with psycopg.connect(libpq_url(url)) as connection:
        age = "SELECT clock_timestamp() - pg_postmaster_start_time() > interval '1.2 s'"
        eventually(lambda: connection.execute(age).fetchone()[0])
        assert not gone(cluster)
    eventually(lambda: gone(cluster))


def test_stop_ends_a_server_that_others_use(cluster: Path) -> None:
    with holder(cluster) as other:
        url = report(other)["url"]
        assert PrivateServer(cluster).shut_down()
        assert not answers(url)
        assert not PrivateServer(cluster).shut_down()


def test_only_the_password_opens_it_and_only_from_this_machine(cluster: Path) -> None:
    with private_server(cluster) as server:
        assert ask(server.url, "SELECT string_agg(DISTINCT auth_method, ',') FROM pg_hba_file_rules") == "scram-sha-256"
        assert ask(server.url, "SELECT current_setting('listen_addresses')") == "127.0.0.1"
        wrong = libpq_url(server.url).replace(server.folder.password.read_text(), "wrong")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(wrong)
        assert server.folder.password.stat().st_mode & 0o777 == 0o600


def test_it_is_durable_and_has_room(cluster: Path) -> None:
    with private_server(cluster) as server:
        settings = "SELECT array_agg(setting ORDER BY name) FROM pg_settings WHERE name IN ('fsync', 'max_connections')"
        assert ask(server.url, settings) == ["on", "200"]
        assert ask(server.url, "SELECT getdatabaseencoding()") == "UTF8"


def test_a_temporary_server_leaves_nothing() -> None:
    with private_server(temporary=True) as server:
        folder = server.folder.path
        assert folder.exists()
    assert not folder.exists()


def test_data_without_their_password_are_a_clear_error(cluster: Path) -> None:
    with private_server(cluster):
        pass
    eventually(lambda: gone(cluster))
    aside = (cluster / "password").rename(cluster / "password.aside")
    try:
        with pytest.raises(EmbeddedUnavailable, match="password is gone"):
            PrivateServer(cluster).start()
    finally:
        aside.rename(cluster / "password")
