"""What a doctor looks at: each finding is ok, warn or fail, with its facts and one sentence."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from effectfence_pg.audit.reading import Reader, one, require_seen, rows, schema_version
from effectfence_pg.errors import SchemaVersionError
from effectfence_pg.sql import audit
from effectfence_pg.sql.tables import SCHEMA_VERSION
from effectfence_pg.versions import require_version

if TYPE_CHECKING:
    from collections.abc import Iterator

CLOCK_SECONDS: Final = 5.0
"""Apart by more, and times in logs of the two sides cannot be compared; leases do not care, they are the database's."""
HOT_PER_SECOND: Final = 5.0
"""Numbers a second in one domain from which readers of it are refused often."""
SAMPLED_NUMBERS: Final = 200
LEAST_NUMBERS: Final = 20
"""Fewer say nothing about a rate."""
SOON_SECONDS: Final = 10.0
LONG_SECONDS: Final = 60.0
DEAD_ROWS: Final = 10_000
HOT_SHARE: Final = 0.9

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    level: Level
    detail: str
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


def diagnose(reader: Reader) -> Iterator[Finding]:
    """Look at everything in turn; without the schema that this library knows, at the server only.

    Args:
        reader: A connection to a database of any version.
    """
    schema = _schema(reader)
    yield schema
    before = time.time()
    server = one(reader, audit.SERVER)
    # The clock was read somewhere between these two.
    yield _clock(float(server["now"]), before, time.time())
    yield from _server(server)
    if schema.level == "ok":
        yield from _record(reader)
    yield _long_transactions(reader)


def _record(reader: Reader) -> Iterator[Finding]:
    require_seen(reader)
    yield from _grants(reader)
    yield _leases(reader)
    yield _hot_domains(reader)
    yield _bloat(reader)


def _schema(reader: Reader) -> Finding:
    found = schema_version(reader)
    facts = {"version": found, "expected": SCHEMA_VERSION}
    try:
        require_version(found)
    except SchemaVersionError as error:
        return Finding("schema", "fail", str(error), facts | {"command": error.command})
    return Finding("schema", "ok", f"revision {found}", facts)


def _clock(theirs: float, before: float, after: float) -> Finding:
    skew = theirs - min(max(theirs, before), after)
    level: Level = "warn" if abs(skew) > CLOCK_SECONDS else "ok"
    return Finding("clock", level, f"the server's clock is {skew:+.1f} s from this machine's", {"skew_seconds": skew})


def _server(server: dict[str, Any]) -> Iterator[Finding]:
    isolation = server["isolation"]
    yield Finding(
        "isolation",
        "ok",
        f"default is {isolation}; every step of the fence asks for serializable itself",
        {"default_transaction_isolation": isolation},
    )
    durable = server["synchronous_commit"] != "off" and server["fsync"] == "on"
    facts = {name: server[name] for name in ("synchronous_commit", "fsync")}
    yield Finding(
        "durability",
        "ok" if durable else "fail",
        "what is committed survives a crash"
        if durable
        else "a crash of the server can lose admissions whose tools have run: set synchronous_commit and fsync to on",
        facts,
    )
    standby = bool(server["in_recovery"])
    yield Finding(
        "standby",
        "fail" if standby else "ok",
        "this is a standby: nothing can be admitted here" if standby else f"a primary, standbys: {server['standbys']}",
        {"in_recovery": standby, "standbys": server["standbys"]},
    )


def _grants(reader: Reader) -> Iterator[Finding]:
    found = rows(reader, audit.GRANTS)
    lacking = [row["name"] for row in found if not row["granted"]]
    yield Finding(
        "grants",
        "warn" if lacking else "ok",
        f"missing for {', '.join(lacking)}: create the role, then SELECT effectfence.grant_roles()"
        if lacking
        else "the three roles are granted what they need",
        {"missing": lacking},
    )


def _leases(reader: Reader) -> Finding:
    reader.execute(audit.QUIET)
    facts = one(reader, audit.LEASES, {"soon": SOON_SECONDS})
    expired = facts["expired"]
    said = f"{facts['unresolved']} unresolved, {facts['failed']} failed, {facts['soon']} leases end within {SOON_SECONDS:.0f} s"
    return Finding(
        "leases",
        "warn" if expired or facts["failed"] else "ok",
        f"{said}, {expired} have run out and are not fenced yet: sweep" if expired else said,
        dict(facts),
    )


def _hot_domains(reader: Reader) -> Finding:
    found = rows(reader, audit.HOT_DOMAINS, {"limit": 20, "sample": SAMPLED_NUMBERS})
    hot = [dict(row) for row in found if row["per_second"] >= HOT_PER_SECOND and row["numbers"] >= LEAST_NUMBERS]
    named = ", ".join(
        f"{row['domain']!r} of {row['namespace']!r} ({row['per_second']:.0f} numbers/s)" for row in hot[:5]
    )
    return Finding(
        "hot_domains",
        "warn" if hot else "ok",
        f"too coarse for its readers: {named}"
        if hot
        else "no domain takes numbers so fast that its readers are refused",
        {"domains": hot},
    )


def _bloat(reader: Reader) -> Finding:
    found = [dict(row) for row in rows(reader, audit.BLOAT)]
    bloated = [row["name"] for row in found if row["dead"] > max(DEAD_ROWS, row["live"])]
    cold = [
        row["name"] for row in found if row["updates"] > DEAD_ROWS and row["hot_updates"] < HOT_SHARE * row["updates"]
    ]
    words = [f"more dead rows than live ones in {', '.join(bloated)}: vacuum"] if bloated else []
    words += [f"changes of {', '.join(cold)} are not heap-only: is there an index too many?"] if cold else []
    return Finding(
        "bloat", "warn" if words else "ok", "; ".join(words) or "nothing to vacuum by hand", {"tables": found}
    )


def _long_transactions(reader: Reader) -> Finding:
    found = [dict(row) for row in rows(reader, audit.LONG_TRANSACTIONS, {"seconds": LONG_SECONDS})]
    named = ", ".join(f"{row['application'] or row['pid']} ({row['seconds']:.0f} s)" for row in found)
    return Finding(
        "long_transactions",
        "warn" if found else "ok",
        f"open for long, which keeps old conflicts alive: {named}"
        if found
        else "nobody keeps a transaction open for long",
        {"transactions": found},
    )
