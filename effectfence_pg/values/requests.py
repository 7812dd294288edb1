"""What a caller asks for: one attempt of one action."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.values.captured import Captured, Keyed, invalid_request
from effectfence_pg.values.clocks import MAX_COUNT, VectorClock
from effectfence_pg.values.identity import Fingerprint, fingerprint, identity_names
from effectfence_pg.values.names import Name, check_name
from effectfence_pg.values.policies import FenceConfig, LeaseExpiry, LeaseSeconds, OnStale

MAX_SEQ = 2**63 - 1
"""The largest sequence number of a domain: a PostgreSQL bigint."""

Seq = Annotated[int, Field(strict=True, ge=0, le=MAX_SEQ)]
CertificateHash = Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{64}$")]


def _ordered(value: Any) -> Any:
    if value is None:
        return ()
    # The order of a set is another one in every process, and this order is hashed.
    if isinstance(value, AbstractSet | Mapping):
        raise ValueError("has no order of its own; give a list")  # noqa: TRY004 (pydantic gathers ValueErrors)
    return value


def _known(value: Any) -> Any:
    return {} if value is None else value


class ReadSetEntry(BaseModel):
    """A domain's number that a decision rests on. Read the number first, then the world.

    `settled` says that nothing unsettled the domain when it was read, as the original's bare form claims. It is written
    to JSON only when false.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    domain: Name
    seq: Seq
    settled: Annotated[bool, Field(strict=True, exclude_if=bool)] = True


def _no_certificate(value: Any) -> Any:
    # Certificates are a layer above requests: they are known by what they have.
    if not isinstance(value, str) and isinstance(getattr(value, "hash", None), str):
        raise ValueError("is a certificate; give certificate.hash")  # noqa: TRY004 (pydantic gathers ValueErrors)
    return value


ReadSet = Annotated[tuple[ReadSetEntry, ...], BeforeValidator(_ordered)]


class Compensation(Captured):
    """The tool call that undoes the effect by meaning, such as a refund."""

    tool: Name
    args: Any = Field(default_factory=dict)


class EffectRequest(Keyed):
    """One attempt of one action. Constructing it raises pydantic's ValidationError, which names the field.

    Attributes:
        intent: The stable id of the action; attempts that share it are the same action.
        domain: The contention scope whose next number the effect takes.
        tool: The tool's name.
        agent: Who acts; its count in the vector clock goes up.
        args: Any JSON value, copied by value.
        read_set: The numbers the decision rests on, one per domain, in the order that the certificate keeps.
        parent: The hash of the certificate this one descends from.
        known_clock: What the agent knows of.
        expected_seq: Short for a read-set entry of the own domain.
        identity: The names of the args that say what the action is; None: all of them.
        lease_seconds: How long the effect may run unheard of; None: the fence's default.
        on_lease_expiry: What becomes of it then; None: the fence's default.
        on_stale: What becomes of it when the read set moved while it ran.
        branch: The speculative plan that it belongs to.
        observes: Intents whose effects it observes.
        compensation: How to undo it.
    """

    intent: Name
    domain: Name
    tool: Name
    agent: Name
    args: Any = Field(default_factory=dict)
    read_set: ReadSet = ()
    parent: Annotated[CertificateHash | None, BeforeValidator(_no_certificate)] = None
    known_clock: Annotated[VectorClock, BeforeValidator(_known)] = Field(default_factory=VectorClock)
    expected_seq: Seq | None = None
    identity: tuple[Name, ...] | None = None
    lease_seconds: LeaseSeconds | None = None
    on_lease_expiry: LeaseExpiry | None = None
    on_stale: OnStale = OnStale.FAIL
    branch: Name | None = None
    observes: Annotated[tuple[Name, ...], BeforeValidator(_ordered)] = ()
    compensation: Compensation | None = None

    @field_validator("read_set")
    @classmethod
    def _one_entry_per_domain(cls, entries: tuple[ReadSetEntry, ...]) -> tuple[ReadSetEntry, ...]:
        seen: set[str] = set()
        for position, entry in enumerate(entries):
            if entry.domain in seen:
                raise InvalidRequest(field=f"read_set[{position}].domain", reason="is in the read set twice")
            seen.add(entry.domain)
        return entries

    @field_validator("known_clock")
    @classmethod
    def _storable_clock(cls, clock: VectorClock, info: ValidationInfo) -> VectorClock:
        for agent in clock.root:
            if agent:
                check_name(agent, field="known_clock")
        if clock.get(info.data.get("agent", "")) == MAX_COUNT:
            raise ValueError("the agent's own count is at its limit of 2^64 - 1")
        return clock

    @field_validator("expected_seq")
    @classmethod
    def _one_expectation(cls, expected: int | None, info: ValidationInfo) -> int | None:
        for entry in info.data.get("read_set", ()):
            if entry.domain == info.data.get("domain") and expected not in {None, entry.seq}:
                raise ValueError(f"is {expected}, but the read set has the own domain at {entry.seq}")
        return expected

    @field_validator("identity")
    @classmethod
    def _names_of_args(cls, identity: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        if identity is None or "args" not in info.data:
            return identity
        return identity_names(identity, info.data["args"])

    @field_validator("observes")
    @classmethod
    def _each_once(cls, intents: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(intents))

    def _derived(self, args_text: str) -> dict[str, Any]:
        digests = fingerprint(
            domain=self.domain, tool=self.tool, args=self.args, identity=self.identity, args_text=args_text
        )
        return super()._derived(args_text) | {
            "fingerprint": digests,
        }

    @property
    def fingerprint(self) -> Fingerprint:
        """The digests of what the action is, as it was at construction."""
        kept: Any = self.__pydantic_private__
        return kept["fingerprint"]

    def check(self, config: FenceConfig) -> None:
        """Compare the sizes with the fence's limits.

        Raises:
            InvalidRequest: The args, the clock, the read set or the observed intents are beyond a limit.
        """
        if len(self.args_text) * 4 > config.max_args_bytes:
            _check_size("args", self.args_text, config.max_args_bytes)
        if not (self.known_clock.root or self.read_set or self.observes or self.compensation):
            return
        _check_count("known_clock", len(self.known_clock.root), config.max_clock_entries)
        _check_count("read_set", len(self.read_set), config.max_read_set_entries)
        _check_count("observes", len(self.observes), config.max_observed_intents)
        if self.compensation is not None:
            _check_size("compensation.args", self.compensation.args_text, config.max_args_bytes)


def _check_size(field: str, text: str, limit: int) -> None:
    # The text never has fewer bytes than characters, and at most four for each.
    if len(text) > limit or (len(text) * 4 > limit and len(text.encode()) > limit):
        raise InvalidRequest(field=field, reason=f"is longer than {limit} bytes of canonical JSON")


def _check_count(field: str, count: int, limit: int) -> None:
    if count > limit:
        raise InvalidRequest(field=field, reason=f"has {count} entries, more than {limit}")


def parse_request(given: EffectRequest | Mapping[str, Any]) -> EffectRequest:
    """Return the request, built from its wire form when it is a mapping.

    Raises:
        InvalidRequest: A field is refused; `field` is the path to it.
    """
    if isinstance(given, EffectRequest):
        return given
    try:
        return EffectRequest.model_validate(given)
    except ValidationError as error:
        raise invalid_request(error) from None
