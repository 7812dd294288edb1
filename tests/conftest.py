"""Fixtures on a real PostgreSQL. The user's own database (EFFECTFENCE_DATABASE_URL) is never touched."""

from __future__ import annotations

import importlib.util
import os
import shutil
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import settings

from effectfence_pg.embedded.binaries import BIN_VARIABLE
from effectfence_pg.embedded.places import STATE_VARIABLE
from effectfence_pg.settings import DATABASE_VARIABLE
from tests.support.proxy import Proxy
from tests.support.rows import change
from tests.support.servers import Databases, ServerLog, TestServer, reachable_directory
from tests.support.world import World

SERVER = pytest.StashKey[TestServer]()
SERVERS = pytest.StashKey[set[str]]()
"""What the processes used that shared the tests."""

collect_ignore = [] if importlib.util.find_spec("langgraph") else ["frameworks"]
"""The frameworks have an environment of their own: `scripts/test frameworks`."""

settings.register_profile("long", max_examples=2_000, stateful_step_count=40, deadline=None)
"""For the machine that drives model and fence side by side: minutes."""


def pytest_configure(config: pytest.Config) -> None:
    os.environ.pop(DATABASE_VARIABLE, None)
    # Tests of the command line start private servers: theirs are not the user's.
    os.environ[STATE_VARIABLE] = str(reachable_directory())
    config.stash[SERVER] = TestServer()
    config.stash[SERVERS] = set()


def pytest_unconfigure(config: pytest.Config) -> None:
    if server := config.stash.get(SERVER, None):
        server.close()
        shutil.rmtree(os.environ.pop(STATE_VARIABLE), ignore_errors=True)


def pytest_report_header(config: pytest.Config) -> str:
    binaries = os.environ.get(BIN_VARIABLE)
    return f"postgres: {config.stash[SERVER].describe()}" + (f", {BIN_VARIABLE}={binaries}" if binaries else "")


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if not config.stash[SERVER].used:
        return
    said = config.stash[SERVER].describe()
    config.stash[SERVERS].add(said)
    if hasattr(config, "workeroutput"):
        config.workeroutput["postgres"] = said


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """One of the processes that share the tests has ended."""
    if said := getattr(node, "workeroutput", {}).get("postgres"):
        node.config.stash[SERVERS].add(said)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for said in sorted(config.stash[SERVERS]):
        terminalreporter.write_line(f"postgres: {said}")


@pytest.fixture(scope="session")
def databases(request: pytest.FixtureRequest) -> Databases:
    """Creates and drops databases on the server of the run."""
    return request.config.stash[SERVER].databases()


@pytest.fixture(scope="session")
def template_database(databases: Databases) -> Iterator[str]:
    """A migrated database that nobody connects to, for copies."""
    from effectfence_pg.migrate import upgrade

    url = databases.create()
    upgrade(url)
    yield url
    databases.drop(url)


@pytest.fixture(scope="session")
def database_url(databases: Databases, template_database: str) -> Iterator[str]:
    """The URL of the run's migrated database. Tests share it and keep apart by namespace."""
    url = databases.create(template_database)
    yield url
    databases.drop(url)


@pytest.fixture
def fresh_database(databases: Databases) -> Iterator[str]:
    """The URL of an empty database for one test."""
    url = databases.create()
    yield url
    databases.drop(url)


@pytest.fixture
def migrated_database(databases: Databases, template_database: str) -> Iterator[str]:
    """The URL of a migrated database for one test."""
    url = databases.create(template_database)
    yield url
    databases.drop(url)


@pytest.fixture
def isolated(migrated_database: str) -> Iterator[sa.Engine]:
    """A database with row security on."""
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    change(engine, "SELECT effectfence.isolate_namespaces(true)")
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def engine(database_url: str) -> Iterator[sa.Engine]:
    """An engine on the run's database, with room for tests of many threads."""
    engine = sa.create_engine(database_url, pool_size=20, max_overflow=40)
    yield engine
    engine.dispose()


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test has."""
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def world(engine: sa.Engine, namespace: str) -> World:
    """A namespace to act in, and to look at behind the library's back."""
    return World(engine, namespace)


@pytest.fixture
def server_log(databases: Databases) -> ServerLog | None:
    """The server's log, None when the server is not ours."""
    return databases.log


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    """A proxy in front of the run's database."""
    with Proxy(database_url) as proxy:
        yield proxy
    assert not proxy.failures
