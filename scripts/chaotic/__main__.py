"""Crash a throwaway PostgreSQL again and again during a storm, and look for a broken promise."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from chaotic.books import Books
from chaotic.promises import broken
from chaotic.workers import Plan, run
from effectfence_pg.embedded import PrivateServer, private_server
from effectfence_pg.errors import FenceError
from effectfence_pg.migrate import upgrade

EXIT_NO, EXIT_DATABASE = 1, 3
POLL_SECONDS = 0.02
LONGEST_ROUND_SECONDS = 600.0
BROKEN_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Chaos:
    """One round: `intents`, each tried `duplicates` times at least, while the server crashes `crashes` times."""

    intents: int
    duplicates: int
    processes: int
    threads: int
    crashes: int

    def plans(self, url: str, namespace: str, books: str, seed: int) -> list[Plan]:
        """Shuffle the attempts and deal them out: who tries what, and when, is another one in every round."""
        attempts = [number for number in range(self.intents) for _ in range(self.duplicates)]
        random.Random(seed).shuffle(attempts)  # noqa: S311 (repeatable, not secret)
        seats = self.processes * self.threads
        orders = [tuple(attempts[seat::seats]) for seat in range(seats)]
        return [
            Plan(url, namespace, books, seed * 1000 + process, tuple(orders[process :: self.processes]))
            for process in range(self.processes)
        ]


def one_round(server: PrivateServer, engine: sa.Engine, wanted: Chaos, seed: int) -> tuple[Counter[str], list[str]]:
    """Storm and crashes, then the account: what was counted, and what is broken."""
    namespace = f"chaos-{uuid.uuid4().hex[:12]}"
    with tempfile.TemporaryDirectory(prefix="effectfence-chaos-") as directory:
        books = Books(str(Path(directory, "books")))
        context = multiprocessing.get_context("spawn")
        calm = context.Event()
        workers = [
            context.Process(target=run, args=(plan, calm), daemon=True)
            for plan in wanted.plans(server.url, namespace, books.path, seed)
        ]
        for worker in workers:
            worker.start()
        crashed = _crash(server, workers, books, wanted, calm)
        found = [f"a process ended with status {worker.exitcode}" for worker in workers if worker.exitcode != 0]
        for worker in workers:
            worker.close()
        # Connections of before a crash are dead.
        engine.dispose()
        counted = books.counts()
        found += broken(engine, namespace, books)
        if counted["attempt"] < wanted.intents * wanted.duplicates:
            found.append(f"every attempt is made: {counted['attempt']} of {wanted.intents * wanted.duplicates}")
    with engine.connect() as connection:
        states = "SELECT state, count(*) FROM effectfence.effects WHERE namespace = :namespace GROUP BY state"
        counted += Counter({row[0]: row[1] for row in connection.execute(sa.text(states), {"namespace": namespace})})
    return counted + Counter(crashes=crashed), found


def _crash(server: PrivateServer, workers: list[Any], books: Books, wanted: Chaos, calm: Any) -> int:
    """Crash the server at even steps of the storm's progress, until the workers have ended; how often."""
    attempts, crashed = wanted.intents * wanted.duplicates, 0
    deadline = time.monotonic() + LONGEST_ROUND_SECONDS
    try:
        while any(worker.is_alive() for worker in workers):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the round did not end in {LONGEST_ROUND_SECONDS:g} s")
            due = (crashed + 1) * attempts // (wanted.crashes + 1)
            if crashed < wanted.crashes and books.counts()["attempt"] >= due:
                server.restart("immediate")
                crashed += 1
            if crashed == wanted.crashes:
                calm.set()
            time.sleep(POLL_SECONDS)
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()
    return crashed


def chaos(wanted: Chaos, *, rounds: int, minutes: float, seed: int) -> dict[str, Any]:
    """Run at least one round, then on until both bounds are reached."""
    begun, done, total, found = time.monotonic(), 0, Counter[str](), list[str]()
    with private_server(temporary=True) as server:
        upgrade(server.url)
        engine = sa.create_engine(server.url)
        while done < max(rounds, 1) or time.monotonic() - begun < minutes * 60:
            counted, broken_now = one_round(server, engine, wanted, seed + done)
            total, done = total + counted, done + 1
            found += broken_now
            print(f"round {done} (seed {seed + done - 1}): {dict(counted)}", file=sys.stderr, flush=True)
        engine.dispose()
        version = server.version
    return {
        "holds": not found,
        "broken": found[:BROKEN_SHOWN],
        "rounds": done,
        "seed": seed,
        "crashes": total["crashes"],
        "attempts": total["attempt"],
        "executions": total["executed"],
        "acknowledged": total["acknowledged"],
        "replayed": total["replayed"],
        "refused": total["refused"],
        **{state: total[state] for state in ("committed", "in_flight", "failed")},
        "elapsed_seconds": round(time.monotonic() - begun, 1),
        "postgres": version,
    }


def main() -> int:
    """Exit status 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds at least (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=0.0, help="go on for so long (default: %(default)s)")
    parser.add_argument("--intents", type=int, default=300, help="intents of a round (default: %(default)s)")
    parser.add_argument("--duplicates", type=int, default=4, help="attempts at each, at least (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=8, help="threads of each (default: %(default)s)")
    parser.add_argument("--crashes", type=int, default=3, help="crashes in each round (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the first round")  # noqa: S311
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    given = parser.parse_args()
    wanted = Chaos(given.intents, given.duplicates, given.processes, given.threads, given.crashes)
    try:
        facts = chaos(wanted, rounds=given.rounds, minutes=given.minutes, seed=given.seed)
    except FenceError as error:
        print(f"error: {error} {error.advice}", file=sys.stderr)
        return EXIT_DATABASE
    lines = [f"{name:<16} {value}" for name, value in facts.items() if name != "broken"]
    print(json.dumps(facts) if given.json else "\n".join([*lines, *facts["broken"]]))
    return 0 if facts["holds"] else EXIT_NO


if __name__ == "__main__":
    sys.exit(main())
