"""What must hold after the chaos, in SQL and against the witness's books. Every query returns what breaks the promise."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

if TYPE_CHECKING:
    from chaotic.books import Books

PROMISES: Final = {
    "an intent has at most one certificate": """
        SELECT encode(intent_key, 'hex'), count(*) FROM effectfence.certificates WHERE namespace = :namespace
        GROUP BY intent_key HAVING count(*) > 1""",
    "a committed effect has its certificate, and nothing else has one": """
        SELECT e.intent, e.attempt, e.state FROM effectfence.effects e
        LEFT JOIN effectfence.certificates c
          ON c.namespace = e.namespace AND c.intent_key = e.intent_key AND c.attempt = e.attempt
        WHERE e.namespace = :namespace AND (e.state = 'committed') <> (c.hash IS NOT NULL)""",
    "every certificate holds when it is recomputed": """
        SELECT intent, attempt FROM effectfence.certificate_audit WHERE namespace = :namespace
          AND NOT (hash_holds AND columns_hold AND parent_holds AND edges_hold AND clock_holds)""",
    "a number of a domain is given once, and none beyond the domain's own": """
        SELECT e.domain, e.seq FROM effectfence.effects e
        JOIN effectfence.domains d ON d.namespace = e.namespace AND d.domain_key = e.domain_key
        WHERE e.namespace = :namespace
        GROUP BY e.domain, e.seq, d.seq HAVING count(*) > 1 OR e.seq > d.seq""",
    "every started effect is committed, in flight or fenced": """
        SELECT intent, attempt, state FROM effectfence.effects
        WHERE namespace = :namespace AND state NOT IN ('committed', 'in_flight', 'failed')""",
    "an intent's current attempt is on record": """
        SELECT i.intent FROM effectfence.intents i
        LEFT JOIN effectfence.effects e
          ON e.namespace = i.namespace AND e.intent_key = i.intent_key AND e.attempt = i.attempt
        WHERE i.namespace = :namespace AND e.state IS NULL""",
    "every effect's story begins with its admission and ends with its state": """
        SELECT e.intent, e.attempt, e.state FROM effectfence.effects e
        WHERE e.namespace = :namespace AND (
          NOT EXISTS (
            SELECT FROM effectfence.transitions t WHERE t.namespace = e.namespace AND t.intent_key = e.intent_key
              AND t.attempt = e.attempt AND t.from_state IS NULL AND t.cause = 'admitted')
          OR e.state IS DISTINCT FROM (
            SELECT t.to_state FROM effectfence.transitions t WHERE t.namespace = e.namespace
              AND t.intent_key = e.intent_key AND t.attempt = e.attempt ORDER BY t.version DESC LIMIT 1))""",
}

STARTED: Final = """
SELECT e.intent, e.attempt, CAST(e.token AS text), e.state, c.hash FROM effectfence.effects e
LEFT JOIN effectfence.certificates c ON c.namespace = e.namespace AND c.intent_key = e.intent_key AND c.attempt = e.attempt
WHERE e.namespace = :namespace"""


def broken(engine: sa.Engine, namespace: str, books: Books) -> list[str]:
    """Every promise that does not hold, with what breaks it."""
    found: list[str] = []
    with engine.connect() as connection:
        for promise, query in PROMISES.items():
            found += [
                f"{promise}: {tuple(row)}" for row in connection.execute(sa.text(query), {"namespace": namespace})
            ]
        started = connection.execute(sa.text(STARTED), {"namespace": namespace}).all()
    return found + _against_the_books([tuple(row) for row in started], books)


def _against_the_books(started: list[tuple[Any, ...]], books: Books) -> list[str]:
    tokens = {(intent, attempt): token for intent, attempt, token, _, _ in started}
    admitted = Counter(intent for intent, *_ in started)
    certified = {intent: hash_ for intent, _, _, _, hash_ in started if hash_ is not None}
    executed = list(books.lines("executed"))
    runs, attempts = Counter(), Counter()
    for line in executed:
        runs[line["intent"]] += 1
        attempts[line["intent"], line["attempt"]] += 1
    found = [f"an error came out of the library: {line['code']}: {line['message']}" for line in books.lines("error")]
    found += [
        f"executions never exceed admitted attempts: {intent} ran {count} times, admitted {admitted[intent]}"
        for intent, count in runs.items()
        if count > admitted[intent]
    ]
    found += [f"an attempt runs once: {key} ran {count} times" for key, count in attempts.items() if count > 1]
    found += [
        f"no admission without a committed row: {line}"
        for line in executed
        if tokens.get((line["intent"], line["attempt"])) != line["token"]
    ]
    found += [f"nothing is certified that did not happen: {intent}" for intent in certified if not runs[intent]]
    found += [
        f"what was answered stays true: {line}"
        for kind in ("acknowledged", "replayed")
        for line in books.lines(kind)
        if certified.get(line["intent"]) != line["hash"]
    ]
    return found
