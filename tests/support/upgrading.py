"""The alembic command line in processes of its own, forked from one that has imported everything already."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path

from effectfence_pg.settings import DATABASE_VARIABLE

INI = Path(__file__).parents[2] / "alembic.ini"
LIMIT_SECONDS = 120


def alembic_main(arguments: Sequence[str], url: str | None, said: str, barrier: Barrier | None) -> None:
    """What `alembic` does with these arguments, once all the others are there."""
    from alembic.config import main

    with Path(said).open("wb", buffering=0) as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    os.environ.pop(DATABASE_VARIABLE, None)
    if url is not None:
        os.environ[DATABASE_VARIABLE] = url
    if barrier is not None:
        barrier.wait(LIMIT_SECONDS)
    sys.argv[0] = "alembic"
    main(["-c", str(INI), *arguments])


def alembic(*arguments: str, url: str | None = None, processes: int = 1) -> list[tuple[int | None, str]]:
    """Exit code and everything that was said, of each of that many processes that begin at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["alembic.config", "psycopg", "effectfence_pg.migrate", "tests.support.upgrading"])
    barrier = context.Barrier(processes) if processes > 1 else None
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{number}" for number in range(processes)]
        running = [context.Process(target=alembic_main, args=(arguments, url, file, barrier)) for file in files]
        for process in running:
            process.start()
        for process in running:
            process.join(LIMIT_SECONDS)
        return [(process.exitcode, Path(file).read_text()) for process, file in zip(running, files, strict=True)]
