"""How the protocol's statements are put together: named CTEs in SQL, one verdict row, every parameter typed once."""

from typing import Any, Final

from sqlalchemy import BigInteger, Boolean, Double, Integer, LargeBinary, Text, TextClause, Uuid, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA

from effectfence_pg.protocol.states import State

PARAMETERS: Final[dict[str, Any]] = {
    "namespace": Text(),
    "intent": Text(),
    "intent_key": LargeBinary(),
    "attempt": Integer(),
    "domain": Text(),
    "domain_key": LargeBinary(),
    "seq": BigInteger(),
    "expected_seq": BigInteger(),
    "token": Uuid(),
    "operation": Uuid(),
    "tool": Text(),
    "agent": Text(),
    "actor": Text(),
    "args": Text(),
    "args_digest": LargeBinary(),
    "identity_digest": LargeBinary(),
    "identity_fields": ARRAY(Text()),
    "parent": Text(),
    "known_clock": Text(),
    "vector_clock": Text(),
    "read_set": Text(),
    "read_keys": ARRAY(BYTEA()),
    "read_seqs": ARRAY(BigInteger()),
    "doubted": Boolean(),
    "observed_keys": ARRAY(BYTEA()),
    "lease_seconds": Double(),
    "on_stale": Text(),
    "on_lease_expiry": Text(),
    "result": Text(),
    "reason": Text(),
    "evidence": Text(),
    "basis": Text(),
    "asked": Boolean(),
    "no_effect": Boolean(),
    "over": Boolean(),
    "outcome": Text(),
    "keys": ARRAY(BYTEA()),
    "attempts": ARRAY(Integer()),
    "tokens": ARRAY(Uuid()),
    "row_limit": Integer(),
    "member_limit": Integer(),
    "branch": Text(),
    "branch_key": LargeBinary(),
    "compensation": Text(),
    "undoes_key": LargeBinary(),
    "undoes_attempt": Integer(),
}
"""Every bind of every statement. The type decides the cast that is sent, so that a prepared statement has one signature."""


def states(members: tuple[State, ...]) -> str:
    """A list of states for IN, from the table of states."""
    return ", ".join(f"'{member}'" for member in members)


CURRENT: Final = """effectfence.intents i
  CROSS JOIN LATERAL (
    -- LIMIT 1, here and wherever one row is joined by its key: where many namespaces use the same few names, such a join is
    -- taken for thousands of rows, and a statement that seems to have millions is compiled, for seconds.
    SELECT * FROM effectfence.effects e
    WHERE e.namespace = i.namespace AND e.intent_key = i.intent_key AND e.attempt = i.attempt LIMIT 1) AS e"""
"""The current attempt `e` of each intent `i`."""


def micros(column: str) -> str:
    """An instant of a row that is often read, as microseconds: the driver takes longer to make one than a replay has.

    An integer, which is the same on every connection: how many digits of a double a server writes is a setting of the session.
    """
    return f"CAST(extract(epoch FROM {column}) * 1000000 AS bigint)"


CERTIFIED: Final = f"""
  LEFT JOIN LATERAL (
    SELECT c.hash, c.body, {micros("c.minted_at")} AS minted_micros, c.reconciled_over FROM effectfence.certificates c
    WHERE c.namespace = i.namespace AND c.intent_key = i.intent_key LIMIT 1) AS c ON true"""
"""Its certificate `c`."""


def statement(*ctes: str, verdict: str) -> TextClause:
    """One statement: the CTEs in order and the SELECT that gives the one verdict row."""
    body = f"WITH RECURSIVE {', '.join(ctes)} {verdict}" if ctes else verdict
    clause = text(body)
    names = [name for name in PARAMETERS if name in clause._bindparams]  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    return clause.bindparams(*(bindparam(name, type_=PARAMETERS[name]) for name in names))


SERIALIZABLE: Final = "current_setting('transaction_isolation') = 'serializable'"
"""Asked by every write: in a weaker isolation the statement writes nothing and says so."""

ISOLATION: Final = "current_setting('transaction_isolation') AS isolation"
