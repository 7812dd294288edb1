"""Many processes that migrate one database at once: forked from one that has imported everything already."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

from effectfence_pg.settings import DATABASE_VARIABLE

INI = Path(__file__).parents[2] / "alembic.ini"


def upgrade_when_all_are_there(url: str, barrier: multiprocessing.synchronize.Barrier) -> None:
    """`alembic upgrade head`, as the command line runs it."""
    from alembic.config import main

    os.environ[DATABASE_VARIABLE] = url
    barrier.wait(60)
    main(["-c", str(INI), "upgrade", "head"])


def upgrade_at_once(url: str, processes: int) -> list[int | None]:
    """The exit codes of that many processes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["alembic.config", "psycopg", "effectfence_pg.migrate", "tests.support.upgrading"])
    barrier = context.Barrier(processes)
    running = [context.Process(target=upgrade_when_all_are_there, args=(url, barrier)) for _ in range(processes)]
    for process in running:
        process.start()
    for process in running:
        process.join(120)
    return [process.exitcode for process in running]
