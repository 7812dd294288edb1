"""What the package promises by name, and that a start which needs none of it does not pay for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import effectfence_pg
from effectfence_pg import _ELSEWHERE, errors, values


@pytest.mark.parametrize("name", effectfence_pg.__all__)
def test_a_public_name_is_there_and_is_what_its_module_has(name: str) -> None:
    found = getattr(effectfence_pg, name)
    assert found is getattr(sys.modules.get(getattr(found, "__module__", ""), effectfence_pg), name, found)
    assert getattr(effectfence_pg, name) is found
    assert name in dir(effectfence_pg)


def test_no_name_is_taken_from_two_places() -> None:
    assert set(_ELSEWHERE) <= set(effectfence_pg.__all__)
    assert not [name for name in _ELSEWHERE if hasattr(errors, name) or hasattr(values, name)]
    assert not [name for name in effectfence_pg.__all__ if hasattr(errors, name) and hasattr(values, name)]


def test_a_name_that_is_not_public_is_an_error_that_says_so() -> None:
    with pytest.raises(AttributeError, match="module 'effectfence_pg' has no attribute 'Fense'"):
        effectfence_pg.Fense  # noqa: B018
    with pytest.raises(ImportError, match="Fense"):
        from effectfence_pg import Fense  # noqa: F401


@pytest.mark.parametrize(
    ("statement", "spared"),
    [
        ("import effectfence_pg", ("sqlalchemy", "psycopg", "pydantic", "asyncio")),
        ("from effectfence_pg import InvalidRequest", ("sqlalchemy", "psycopg")),
        ("from effectfence_pg import Fence", ("alembic", "mcp", "typer")),
    ],
)
def test_what_is_not_asked_for_is_not_imported(statement: str, spared: tuple[str, ...]) -> None:
    program = f"import sys; {statement}; print(*(name for name in {spared!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []


MODULES = (
    "migrate.upgrade",
    "errors.FenceError",
    "errors.database.DatabaseUnavailable",
    "values.canonical.read_json",
    "settings.normalise_url",
    "fence.Fence",
    "async_repository.AsyncFenceRepository",
    "repository.is_retryable",
    "running.current.current_effect",
    "sql.tables.metadata",
    "protocol.states.State",
    "waiting.admissions.Memory",
    "telemetry.wanted",
)


def test_a_module_of_the_package_is_there_when_the_package_is_imported() -> None:
    """Each in a process that has imported nothing of the package."""
    program = f"""
import os, sys
import alembic, psycopg, pydantic, sqlalchemy.ext.asyncio
for path in {MODULES!r}:
    if not (process := os.fork()):
        import effectfence_pg
        exec("effectfence_pg." + path)
        os._exit(0)
    if os.waitpid(process, 0)[1]:
        print(path)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_many_threads_that_ask_first_at_once_all_get_the_name() -> None:
    program = """
import sys, threading
sys.setswitchinterval(1e-6)
import effectfence_pg
names, found, gate = [*effectfence_pg.__all__, "migrate", "sql", "running"] * 2, [], threading.Barrier(16)
def ask(at):
    gate.wait()
    for name in names[at * 7:] + names[:at * 7]:
        found.append(getattr(effectfence_pg, name))
threads = [threading.Thread(target=ask, args=(at,)) for at in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(found) - 16 * len(names))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True, timeout=60)
    assert done.stdout.split() == ["0"], done.stderr
