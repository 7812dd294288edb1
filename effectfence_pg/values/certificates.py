"""Certificates: immutable, content-addressed records of committed effects, in the original's exact bytes."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Any, Self, cast

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, field_validator

from effectfence_pg.errors import Blocker
from effectfence_pg.values.canonical import JsonValue, canonical_json, quoted, read_json, to_json_value
from effectfence_pg.values.clocks import VectorClock
from effectfence_pg.values.names import Text
from effectfence_pg.values.requests import CertificateHash, ReadSet, ReadSetEntry, Seq
from effectfence_pg.values.trusted import trusted

HASHED_FIELDS = (
    "intent",
    "parent",
    "domain",
    "seq",
    "tool",
    "args",
    "result",
    "vector_clock",
    "read_set",
    "agent",
)
"""The ten fields of a certificate, in the order in which they are hashed."""


def certificate_body(
    *,
    intent: str,
    parent: str | None,
    domain: str,
    seq: int,
    tool: str,
    args: object,
    result: object,
    vector_clock: VectorClock | Mapping[str, int],
    read_set: Iterable[ReadSetEntry | Mapping[str, Any]],
    agent: str,
) -> bytes:
    """Return the exact bytes that a certificate's hash is taken over. No size limits.

    Source: the original EffectFence, whose certificates these bytes reproduce.

    Raises:
        InvalidRequest: A value that JSON cannot hold; `field` is the path to it.
    """
    return joined_body(
        intent=intent,
        parent=parent,
        domain=domain,
        seq=seq,
        tool=tool,
        args_text=_member(args, "args"),
        result_text=_member(result, "result"),
        vector_clock=vector_clock,
        read_set=read_set,
        agent=agent,
    )


def joined_body(
    *,
    intent: str,
    parent: str | None,
    domain: str,
    seq: int,
    tool: str,
    args_text: str,
    result_text: str,
    vector_clock: VectorClock | Mapping[str, int],
    read_set: Iterable[ReadSetEntry | Mapping[str, Any]],
    agent: str,
) -> bytes:
    """Return the same bytes as `certificate_body` from args and a result that are canonical JSON already."""
    clock = vector_clock.root if isinstance(vector_clock, VectorClock) else vector_clock
    # The ten fields stand in their own order; below them keys are sorted, where `domain` comes before `seq` as well.
    return "".join(
        (
            f'{{"intent":{_member(intent, "intent")},"parent":{_member(parent, "parent")},',
            f'"domain":{_member(domain, "domain")},"seq":{_member(seq, "seq")},"tool":{_member(tool, "tool")},',
            f'"args":{args_text},"result":{result_text},"vector_clock":{_member(clock, "vector_clock")},',
            f'"read_set":{_member([_entry(entry) for entry in read_set], "read_set")},',
            f'"agent":{_member(agent, "agent")}}}',
        )
    ).encode()


def _member(value: object, field: str) -> str:
    if type(value) is str and value.isascii():
        return quoted(value)
    return canonical_json(to_json_value(value, field=field))


def _entry(entry: ReadSetEntry | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(entry, ReadSetEntry):
        return {"domain": entry.domain, "seq": entry.seq}
    return {"domain": entry["domain"], "seq": entry["seq"]}


def certificate_hash(**facts: Any) -> str:
    """Return the lower hex SHA-256 of `certificate_body`, with the same arguments and errors."""
    return sha256(certificate_body(**facts)).hexdigest()


class EffectCert(BaseModel):
    """A committed effect: the ten hashed fields and their hash, and what this library adds beside them.

    Attributes:
        intent: The action's id.
        parent: The hash of the certificate this one descends from.
        domain: The contention scope.
        seq: The domain's number that the effect took.
        tool: The tool's name.
        args: The args at admission.
        result: What the tool returned.
        vector_clock: What the effect could have known of, itself included.
        read_set: The numbers that the decision rested on.
        agent: Who acted.
        hash: Lower hex SHA-256 of the ten fields above.
        namespace: The tenant, when it is known.
        attempt: The attempt that committed, counted from 1.
        minted_at: When, by the database's clock.
        reconciled_over: The dead effects that an operator overrode, None when there were none.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    intent: Text
    parent: CertificateHash | None = None
    domain: Text
    seq: Seq
    tool: Text
    args: Any
    result: Any
    vector_clock: VectorClock
    read_set: ReadSet
    agent: Text
    hash: CertificateHash
    namespace: Text | None = None
    attempt: Annotated[int, Field(ge=1)] | None = None
    minted_at: AwareDatetime | None = None
    reconciled_over: tuple[Blocker, ...] | None = None

    @field_validator("args", "result", mode="plain")
    @classmethod
    def _copy_value(cls, value: Any, info: Any) -> JsonValue:
        return to_json_value(value, field=info.field_name)

    @classmethod
    def from_body(
        cls,
        body: bytes,
        *,
        hash: str | None = None,  # noqa: A002 (the wire's name)
        namespace: str | None = None,
        attempt: int | None = None,
        minted_at: datetime | None = None,
        reconciled_over: tuple[Blocker, ...] | None = None,
    ) -> Self:
        """Build the certificate from its stored bytes, which are trusted; `verify` tells whether they hold.

        Args:
            body: The bytes that were hashed.
            hash: The stored hash; computed when not given.
            namespace: The tenant.
            attempt: The attempt that committed.
            minted_at: When, by the database's clock.
            reconciled_over: The dead effects that an operator overrode.

        Raises:
            InvalidRequest: `body` is no JSON.
        """
        facts = cast("dict[str, Any]", read_json(body))
        facts["vector_clock"] = trusted(VectorClock, {"root": facts["vector_clock"]})
        facts["read_set"] = tuple(
            [trusted(ReadSetEntry, {**entry, "settled": True}) for entry in facts["read_set"]]
            if facts["read_set"]
            else ()
        )
        facts["hash"] = hash or sha256(body).hexdigest()
        facts["namespace"] = namespace
        facts["attempt"] = attempt
        facts["minted_at"] = minted_at
        facts["reconciled_over"] = reconciled_over
        return trusted(cls, facts)

    def body(self) -> bytes:
        """Return the bytes of the ten hashed fields."""
        return certificate_body(**{name: getattr(self, name) for name in HASHED_FIELDS})

    def verify(self) -> bool:
        """Recompute the hash from the ten fields and compare it with `hash`."""
        return sha256(self.body()).hexdigest() == self.hash

    def wire(self) -> dict[str, Any]:
        """Return the original's JSON form: the ten hashed fields and `hash`."""
        facts = {name: getattr(self, name) for name in HASHED_FIELDS}
        facts["vector_clock"] = dict(self.vector_clock.root)
        facts["read_set"] = [_entry(entry) for entry in self.read_set]
        return {**facts, "hash": self.hash}
