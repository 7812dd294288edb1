"""Every certificate recomputed twice, in SQL and in Python, and compared with an earlier export."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

from effectfence_pg.audit.errors import UnknownNamespace
from effectfence_pg.audit.reading import Reader, Row, one, rows, streamed
from effectfence_pg.errors import InvalidRequest
from effectfence_pg.sql import audit
from effectfence_pg.sql.certificate_audit import CHECKS
from effectfence_pg.values import EffectCert
from effectfence_pg.values.canonical import canonical_json
from effectfence_pg.values.identity import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

LISTED = 1000
"""Mismatches that are named; all are counted."""


class Comparison(Protocol):
    """What is told every certificate in the order of namespace and hash, and says in the end what it missed."""

    def meet(self, row: Row) -> None:
        """One more certificate of the database."""
        ...

    def close(self) -> dict[str, Any]:
        """What was found."""
        ...


@dataclass
class Findings:
    """What a verification found.

    Attributes:
        certificates: How many were read.
        digest: Lower hex SHA-256 over all hashes and namespaces in order; an export says the same.
        mismatches: By namespace and hash: the intent, and the names of the checks that do not hold.
        mismatch_count: How many certificates have one; more than are named, perhaps.
        missing: Committed effects without a certificate.
        seconds: How long SQL and Python took.
        against: What a comparison with an earlier export found.
    """

    certificates: int = 0
    digest: str = ""
    mismatches: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict[tuple[str, str], dict[str, Any]])
    mismatch_count: int = 0
    missing: list[Row] = field(default_factory=list[Row])
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    against: dict[str, Any] | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing at all was found."""
        # A comparison with a ledger that has nothing of the namespace proves nothing.
        against = self.against
        differs = against and (against["missing_count"] or against["changed_count"] or against["lacks_namespace"])
        return not self.mismatch_count and not self.missing and not differs

    def note(self, namespace: str, hash_: str, intent: str | None, checks: list[str]) -> None:
        """One more certificate, or one more reason, that does not hold."""
        known = self.mismatches.get((namespace, hash_))
        if known is None:
            self.mismatch_count += 1
            if len(self.mismatches) >= LISTED:
                return
            known = self.mismatches[namespace, hash_] = {"intent": intent, "checks": []}
        known["checks"] += [check for check in checks if check not in known["checks"]]

    def facts(self) -> dict[str, Any]:
        """Ready for JSON."""
        rates = {name: round(self.certificates / max(took, 1e-9)) for name, took in self.seconds.items()}
        return {
            "holds": self.holds,
            "certificates": self.certificates,
            "digest": self.digest,
            "mismatch_count": self.mismatch_count,
            "mismatches": [
                {"namespace": namespace, "hash": hash_, **facts}
                for (namespace, hash_), facts in sorted(self.mismatches.items())
            ],
            "missing": [dict(row) for row in self.missing],
            "per_second": rates,
            "against": self.against,
        }


def verify(
    reader: Reader,
    *,
    namespace: str | None = None,
    since: datetime | None = None,
    against: Comparison | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Findings:
    """Recompute every certificate. What is held in memory does not grow with their number.

    Args:
        reader: The connection.
        namespace: The tenant; all of them when not given.
        since: Only what was minted from then on.
        against: An earlier export to compare with.
        progress: Told how many of how many were read.

    Raises:
        UnknownNamespace: Nothing was ever admitted under that name.
    """
    findings, within = Findings(), {"namespace": namespace, "since": since, "limit": LISTED}
    _in_sql(reader, findings, within)
    _in_python(reader, findings, within, against, progress)
    findings.missing = rows(reader, audit.MISSING, within)
    if against is not None:
        findings.against = against.close()
    compared = findings.against["certificates"] if findings.against else 0
    if namespace is not None and not findings.certificates and not compared:
        _require_used(reader, namespace)
    return findings


def _require_used(reader: Reader, namespace: str) -> None:
    """With `since`, and before a first commit, a namespace may have nothing to verify; of a misspelt one there is no intent."""
    if not rows(reader, audit.USED, {"namespace": namespace}, quiet=True)[0]["used"]:
        raise UnknownNamespace(namespace=namespace)


def _in_sql(reader: Reader, findings: Findings, within: Mapping[str, Any]) -> None:
    begun = time.monotonic()
    reader.execute("SELECT set_config('jit', 'off', true)")
    wrong = one(reader, audit.AUDIT, within)["wrong"]
    if wrong:
        for row in rows(reader, audit.MISMATCHES, within):
            checks = [check for check, column in CHECKS.items() if not row[column]]
            findings.note(row["namespace"], row["hash"], row["intent"], checks)
        findings.mismatch_count = wrong
    findings.seconds["sql"] = time.monotonic() - begun


def _in_python(
    reader: Reader,
    findings: Findings,
    within: Mapping[str, Any],
    against: Comparison | None,
    progress: Callable[[int, int], None],
) -> None:
    begun, running, listed = time.monotonic(), sha256(), len(findings.mismatches)
    query = audit.LEDGER if against is None else audit.LEDGER_WITH_EDGES
    total = one(reader, audit.COUNT_CERTIFICATES, within)["count"]
    for count, row in enumerate(streamed(reader, query, within), start=1):
        running.update(f"{row['hash']} {row['namespace']}\n".encode())
        checks = recomputed(row)
        # Past the list nobody can tell whether SQL has counted it: what SQL finds is never less.
        if checks and (listed < LISTED or (row["namespace"], row["hash"]) in findings.mismatches):
            findings.note(row["namespace"], row["hash"], row["intent"], checks)
        if against is not None:
            against.meet(row)
        findings.certificates = count
        if not count % 1000:
            progress(count, total)
    progress(findings.certificates, total)
    findings.digest = running.hexdigest()
    findings.seconds["python"] = time.monotonic() - begun


def recomputed(row: Mapping[str, Any]) -> list[str]:
    """The checks of one stored certificate that do not hold, recomputed from its parsed fields."""
    wrong: list[str] = []
    body = bytes(row["body"])
    if sha256(body).hexdigest() != row["hash"]:
        wrong.append("hash")
    try:
        certificate = EffectCert.from_body(body, hash=row["hash"])
        # The fields as they are read, written again: bytes that say the same in another way are not a certificate.
        if certificate.body() != body:
            wrong.append("canonical")
        if not _columns_hold(certificate, row):
            wrong.append("columns")
        if not _identity_holds(certificate, row):
            wrong.append("identity")
    except (ValueError, KeyError, TypeError, AttributeError, InvalidRequest):
        wrong.append("canonical")
    return wrong


def _columns_hold(certificate: EffectCert, row: Mapping[str, Any]) -> bool:
    plain = ("intent", "domain", "seq", "tool", "agent")
    return (
        all(getattr(certificate, name) == row[name] for name in plain)
        and certificate.parent == row["parent"] == row["effect_parent"]
        and canonical_json(certificate.args) == row["args"]
        and canonical_json(certificate.result) == row["result"]
        and canonical_json(dict(certificate.vector_clock.root)) == row["vector_clock"]
        and canonical_json([{"domain": e.domain, "seq": e.seq} for e in certificate.read_set]) == row["read_set"]
    )


def _identity_holds(certificate: EffectCert, row: Mapping[str, Any]) -> bool:
    """Whether the digests that decide about replays are those of what the certificate says."""
    made = fingerprint(
        domain=certificate.domain, tool=certificate.tool, args=certificate.args, identity=row["identity_fields"]
    )
    return made[:2] == (bytes(row["args_digest"]), bytes(row["identity_digest"]))
