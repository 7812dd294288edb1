"""What the audit takes: walks along a chain beside a plain recursive CTE, and certificates recomputed a second."""

from __future__ import annotations

import contextlib
import io
import time
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.results import BenchFailedError, Result, Target, median_ratio
from effectfence_pg.audit import ledger, verification
from effectfence_pg.audit.reading import reading
from effectfence_pg.sql import audit

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import psycopg

    from benchmarks.databases import Bench

NAMESPACE: Final = "audit"
GROUP: Final = "audit"

FILL: Final = """
CREATE TEMP TABLE story AS
SELECT n, 'step:' || n AS intent, 'of:' || n AS domain, sha256(convert_to('step:' || n, 'UTF8')) AS intent_key,
       sha256(convert_to('of:' || n, 'UTF8')) AS domain_key,
       sha256(convert_to('{{"args":{{"amount_cents":4900}},"domain":"of:' || n || '","tool":"charge"}}', 'UTF8')) AS action,
       n BETWEEN 2 AND {chain} AS observing,
       '{{"a":' || CASE WHEN n <= {chain} THEN n ELSE 1 END || '}}' AS clock
FROM generate_series(1, {count}) AS n;
INSERT INTO effectfence.domains (namespace, domain_key, domain, seq) SELECT '{ns}', domain_key, domain, 1 FROM story;
INSERT INTO effectfence.intents (namespace, intent_key, intent, attempt, version, created_at)
SELECT '{ns}', intent_key, intent, 1, 1, now() FROM story;
INSERT INTO effectfence.effects
  (namespace, intent_key, attempt, state, version, token, intent, domain_key, domain, seq, tool, agent, args, args_digest,
   identity_digest, vector_clock, read_set, read_keys, read_seqs, observing, on_stale, on_lease_expiry, took_over,
   lease_seconds, admitted_at, commit_asked, result)
SELECT '{ns}', intent_key, 1, 'committed', 2, gen_random_uuid(), intent, domain_key, domain, 1, 'charge', 'a',
       '{{"amount_cents":4900}}', action, action, clock, '[]', '{{}}', '{{}}', observing, 'fail', 'fence', false, 60,
       now(), true, '{{"charge_id":"ch_' || n || '"}}'
FROM story;
INSERT INTO effectfence.certificates (namespace, hash, intent_key, attempt, body, minted_at, args_digest, identity_digest)
SELECT namespace, encode(sha256(body), 'hex'), intent_key, 1, body, now(), args_digest, identity_digest
FROM (SELECT namespace, intent_key, args_digest, identity_digest,
             effectfence.certificate_body(intent, parent, domain, seq, tool, args, result, vector_clock, read_set,
                                          agent) AS body
      FROM effectfence.effects WHERE namespace = '{ns}') AS made;
INSERT INTO effectfence.transitions (namespace, intent_key, attempt, version, from_state, to_state, cause, actor, at)
SELECT '{ns}', intent_key, 1, v, CASE v WHEN 2 THEN 'in_flight' END, CASE v WHEN 1 THEN 'in_flight' ELSE 'committed' END,
       CASE v WHEN 1 THEN 'admitted' ELSE 'committed' END, 'a', now()
FROM story, generate_series(1, 2) AS v;
INSERT INTO effectfence.edges (namespace, intent_key, attempt, observed_key, observed_attempt, via)
SELECT '{ns}', later.intent_key, 1, earlier.intent_key, 1, 'observes'
FROM story later JOIN story earlier ON earlier.n = later.n - 1 WHERE later.observing;
DROP TABLE story;
"""

_TOP: Final = (
    "SELECT hash FROM effectfence.certificates WHERE namespace = '{ns}' AND intent_key = sha256('step:{chain}')"
)

PLAIN: Final = """
WITH RECURSIVE walk AS (
  SELECT c.namespace, c.intent_key, c.attempt, 0 AS depth FROM effectfence.certificates c
  WHERE c.namespace = '{ns}' AND c.hash = '{hash}'
  UNION
  SELECT g.namespace, g.observed_key, g.observed_attempt, w.depth + 1
  FROM walk w JOIN effectfence.edges g ON g.namespace = w.namespace AND g.intent_key = w.intent_key AND g.attempt = w.attempt
)
"""
KEYS: Final = f"{PLAIN}SELECT count(*), max(depth), count(intent_key) FROM walk"  # noqa: S608 (constants)
NAMED: Final = f"""{PLAIN}
SELECT count(*), max(w.depth), count(e.intent), count(c.hash) FROM walk w
JOIN effectfence.effects e USING (namespace, intent_key, attempt)
LEFT JOIN effectfence.certificates c USING (namespace, intent_key, attempt)"""  # noqa: S608 (constants)
LINEAGE: Final = "SELECT count(*), max(depth) FROM effectfence.lineage('{ns}', '{hash}')"
LINEAGE_NAMED: Final = """
SELECT count(*), max(depth), count(intent), count(certificate) FROM effectfence.lineage('{ns}', '{hash}')"""

FLOOR_KEYS: Final = "floor: recursive CTE, keys"
FLOOR_NAMED: Final = "floor: recursive CTE, names"
KEYS_OURS: Final = "lineage: depth"
NAMED_OURS: Final = "lineage: depth, names, hashes"


def measure(bench: Bench) -> Generator[Result]:
    """Fill a namespace once, then walk and recompute in turn."""
    chain, count = bench.scale.chain_effects, bench.scale.audited_certificates
    facts: dict[str, Any] = {"ns": NAMESPACE, "chain": chain, "count": count}
    with contextlib.ExitStack() as exits:
        connection = exits.enter_context(bench.connect())
        bench.say(f"audit: filling in {count} certificates, {chain} of them in a chain")
        connection.execute(FILL.format(**facts).encode())
        connection.execute("VACUUM ANALYZE")
        [facts["hash"]] = connection.execute(_TOP.format(**facts).encode()).fetchone() or (None,)
        connection.execute("SET jit = off")
        floor = exits.enter_context(bench.connect())
        # The plan of a plain walk that reads each edge by its key once: what a planner makes of a short table is slower.
        floor.execute("SET jit = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off")
        reader = exits.enter_context(reading(bench.url))
        walks = {
            FLOOR_KEYS: lambda: _walk(floor, KEYS.format(**facts), chain),
            FLOOR_NAMED: lambda: _walk(floor, NAMED.format(**facts), chain),
            KEYS_OURS: lambda: _walk(connection, LINEAGE.format(**facts), chain),
            NAMED_OURS: lambda: _walk(connection, LINEAGE_NAMED.format(**facts), chain),
        }
        times = _alternating(bench, walks)
        yield from _walked(times)
        yield from _recomputed(bench, reader, count)


def _alternating(bench: Bench, cases: dict[str, Callable[[], None]]) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = defaultdict(list)
    for repetition in range(bench.scale.repetitions + 1):
        bench.say(f"audit: repetition {repetition} of {bench.scale.repetitions}")
        for name, call in cases.items():
            begun = time.perf_counter()
            call()
            if repetition:
                taken[name].append((time.perf_counter() - begun) * 1000)
    return taken


def _walk(connection: psycopg.Connection[Any], query: str, chain: int) -> None:
    count, depth, *_ = connection.execute(query.encode()).fetchone() or (0, 0)
    if (count, depth) != (chain, chain - 1):
        raise BenchFailedError(f"a walk along {chain} effects met {count}")


def _walked(times: dict[str, list[float]]) -> Generator[Result]:
    for floor, ours in ((FLOOR_KEYS, KEYS_OURS), (FLOOR_NAMED, NAMED_OURS)):
        yield Result(GROUP, floor, "on", "ms", median(times[floor]))
        ratio = median_ratio(times[ours], times[floor])
        yield Result(GROUP, ours, "on", "ms", median(times[ours]), floor=floor, ratio=ratio, target=Target("<=", 3.0))


def _recomputed(bench: Bench, reader: Any, count: int) -> Generator[Result]:
    rates: dict[str, list[float]] = defaultdict(list)
    for repetition in range(1, bench.scale.repetitions + 1):
        bench.say(f"audit: verification {repetition} of {bench.scale.repetitions}")
        found = verification.verify(reader, namespace=NAMESPACE)
        if not found.holds or found.certificates != count:
            raise BenchFailedError(f"{found.mismatch_count} of {found.certificates} certificates do not hold")
        for side, seconds in found.seconds.items():
            rates[side].append(count / seconds)
        begun = time.perf_counter()
        ledger.export(reader, _Nowhere(), namespace=NAMESPACE)
        rates["export"].append(count / (time.perf_counter() - begun))
        begun = time.perf_counter()
        reader.execute(audit.QUIET)
        reader.execute(audit.UNRESOLVED_COUNT.encode(), {"namespace": NAMESPACE})
        rates["unresolved"].append((time.perf_counter() - begun) * 1000)
    yield Result(GROUP, "verify in SQL", "on", "per second", median(rates["sql"]), target=Target(">=", 20_000))
    yield Result(GROUP, "verify in Python", "on", "per second", median(rates["python"]), target=Target(">=", 5_000))
    yield Result(GROUP, "export", "on", "per second", median(rates["export"]))
    yield Result(GROUP, f"unresolved among {count}", "on", "ms", median(rates["unresolved"]))


class _Nowhere(io.StringIO):
    def write(self, text: str, /) -> int:
        return len(text)
