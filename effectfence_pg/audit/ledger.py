"""Certificates as JSON lines: the original's wire form, byte for byte, with what this library adds behind it.

The last line counts the certificates and digests their hashes, so that a file that was cut or edited is recognised.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import IO, TYPE_CHECKING, Any

from effectfence_pg.audit.beside import Beside
from effectfence_pg.audit.errors import LedgerBroken
from effectfence_pg.audit.reading import Reader, Row, streamed
from effectfence_pg.sql import audit
from effectfence_pg.values.canonical import canonical_json, read_json
from effectfence_pg.values.certificates import HASHED_FIELDS, certificate_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

LISTED = 1000
"""Certificates that are named; all are counted."""

_ADDED = ("hash", "namespace", "attempt", "minted_at", "reconciled_over", "identity_fields", "observed")


@dataclass(frozen=True)
class Entry:
    """One certificate of a ledger: its bytes, and what stands beside them."""

    namespace: str
    hash: str
    body: bytes
    facts: Mapping[str, Any]

    @property
    def minted_at(self) -> datetime:
        """When, by the clock of the database it came from."""
        return datetime.fromisoformat(self.facts["minted_at"])


@dataclass
class Total:
    """What the last line of a ledger says."""

    certificates: int
    digest: str


class _Counting:
    def __init__(self) -> None:
        self.certificates = 0
        self._running = sha256()

    def add(self, namespace: str, hash_: str) -> None:
        self.certificates += 1
        self._running.update(f"{hash_} {namespace}\n".encode())

    def total(self) -> Total:
        return Total(self.certificates, self._running.hexdigest())


def export(
    reader: Reader,
    file: IO[str],
    *,
    namespace: str | None = None,
    since: datetime | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> Total:
    """Write every certificate, in the order of namespace and hash, and the total."""
    counting = _Counting()
    for row in streamed(reader, audit.EXPORT, {"namespace": namespace, "since": since}):
        file.write(_line(row))
        counting.add(row["namespace"], row["hash"])
        if not counting.certificates % 1000:
            progress(counting.certificates)
    total = counting.total()
    file.write(json.dumps({"ledger": vars(total)}) + "\n")
    return total


def _line(row: Mapping[str, Any]) -> str:
    added = {name: row[name] for name in _ADDED} | {"minted_at": row["minted_at"].isoformat()}
    # The bytes that were hashed stand in the line as they are.
    return bytes(row["body"]).decode()[:-1] + "," + json.dumps(added, ensure_ascii=False)[1:] + "\n"


def entries(file: IO[str]) -> Iterator[Entry]:
    """Read a ledger, each certificate verified by its own hash, all of them by the total.

    Raises:
        LedgerBroken: The line that does not hold; 0 when the total is missing.
    """
    counting, said = _Counting(), None
    for number, text in enumerate(_texts(file), start=1):
        if said is not None:
            raise LedgerBroken(line=number, reason="something stands behind the total")
        facts = _parsed(text, number)
        if "ledger" in facts:
            said = _total(facts["ledger"], number)
            continue
        entry = _entry(facts, number)
        counting.add(entry.namespace, entry.hash)
        yield entry
    if said is None:
        raise LedgerBroken(line=0, reason="its last line, the total, is missing: it was cut")
    if said != counting.total():
        raise LedgerBroken(line=0, reason="the total says otherwise: certificates were removed, added or moved")


def _texts(file: IO[str]) -> Iterator[str]:
    try:
        yield from file
    except UnicodeDecodeError as error:
        raise LedgerBroken(line=0, reason="it is no text in UTF-8") from error


def _parsed(text: str, number: int) -> dict[str, Any]:
    try:
        facts = read_json(text.encode())
    except ValueError as error:
        raise LedgerBroken(line=number, reason="it is no JSON") from error
    if not isinstance(facts, dict):
        raise LedgerBroken(line=number, reason="it is no JSON object")
    return facts


def _total(said: Any, number: int) -> Total:
    try:
        return Total(int(said["certificates"]), str(said["digest"]))
    except (TypeError, KeyError, ValueError) as error:
        raise LedgerBroken(line=number, reason="it is no total") from error


def _entry(facts: dict[str, Any], number: int) -> Entry:
    try:
        body = certificate_body(**{name: facts[name] for name in HASHED_FIELDS})
        entry = Entry(facts["namespace"], facts["hash"], body, facts)
        # No hash covers what stands beside the certificate: a ledger that was edited must not get into a database.
        Beside.model_validate({name: facts.get(name) for name in Beside.model_fields})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LedgerBroken(line=number, reason="it is no certificate") from error
    if sha256(body).hexdigest() != entry.hash:
        raise LedgerBroken(line=number, reason=f"certificate {entry.hash} does not hold")
    return entry


class _Listed:
    def __init__(self) -> None:
        self.count = 0
        self.named: list[dict[str, Any]] = []

    def add(self, entry: Entry) -> None:
        self.count += 1
        if self.count <= LISTED:
            self.named.append({"namespace": entry.namespace, "hash": entry.hash, "intent": entry.facts["intent"]})


def _beside(facts: Mapping[str, Any], minted_at: datetime) -> tuple[Any, ...]:
    """What stands beside a certificate's bytes and no hash covers: the edges above all."""
    observed = sorted(map(str, facts.get("observed") or []))
    return facts.get("attempt"), minted_at, facts.get("reconciled_over"), observed


class Earlier:
    """An earlier ledger beside the database's certificates: both in one order, so that a merge needs no memory.

    Args:
        file: The ledger.
        namespace: Only this tenant's.
        since: Only what was minted from then on.
    """

    def __init__(self, file: IO[str], *, namespace: str | None = None, since: datetime | None = None) -> None:
        self._entries = entries(file)
        self._namespace, self._since = namespace, since
        self._missing, self._changed = _Listed(), _Listed()
        self._seen = False
        self._compared = _Counting()
        self._next = self._step()

    def meet(self, row: Row) -> None:
        """One more certificate of the database; what the ledger has before it is gone from there."""
        here = (row["namespace"], row["hash"])
        while self._next is not None and (self._next.namespace, self._next.hash) < here:
            self._missing.add(self._next)
            self._next = self._step()
        if self._next is not None and (self._next.namespace, self._next.hash) == here:
            if _beside(self._next.facts, self._next.minted_at) != _beside(row, row["minted_at"]):
                self._changed.add(self._next)
            self._next = self._step()

    def close(self) -> dict[str, Any]:
        """What was compared, what the database does not have any more, and what it says otherwise beside the bytes.

        The digest is that of an export of the same namespace and time. `lacks_namespace`: the ledger has nothing at all of it.
        """
        while self._next is not None:
            self._missing.add(self._next)
            self._next = self._step()
        return {
            **vars(self._compared.total()),
            "lacks_namespace": self._namespace is not None and not self._seen,
            "missing_count": self._missing.count,
            "missing": self._missing.named,
            "changed_count": self._changed.count,
            "changed": self._changed.named,
        }

    def _step(self) -> Entry | None:
        for entry in self._entries:
            if self._namespace not in {None, entry.namespace}:
                continue
            self._seen = True
            if self._since is None or entry.minted_at >= self._since:
                self._compared.add(entry.namespace, entry.hash)
                return entry
        return None


def columns(entry: Entry) -> dict[str, Any]:
    """The columns that a certificate is stored with, made from its fields."""
    facts = entry.facts
    return {
        **{name: facts[name] for name in ("intent", "parent", "domain", "seq", "tool", "agent", "attempt")},
        "namespace": entry.namespace,
        "hash": entry.hash,
        "body": entry.body,
        "args": canonical_json(facts["args"]),
        "result": canonical_json(facts["result"]),
        "vector_clock": canonical_json(facts["vector_clock"]),
        "read_set": canonical_json([{"domain": e["domain"], "seq": e["seq"]} for e in facts["read_set"]]),
        "minted_at": entry.minted_at,
    }
