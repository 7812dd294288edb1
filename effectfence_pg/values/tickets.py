"""What prepare and commit answer: the ticket of an admitted effect, a replayed certificate, a held effect."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Self
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from effectfence_pg.errors import Blocker, InvalidRequest
from effectfence_pg.values.canonical import read_json
from effectfence_pg.values.captured import Keyed, invalid_request
from effectfence_pg.values.certificates import EffectCert, joined_body
from effectfence_pg.values.clocks import VectorClock
from effectfence_pg.values.identity import fingerprint
from effectfence_pg.values.names import Name, Namespace
from effectfence_pg.values.policies import LeaseSeconds
from effectfence_pg.values.requests import CertificateHash, EffectRequest, ReadSet, ReadSetEntry, Seq
from effectfence_pg.values.trusted import trusted

Attempt = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]


class PreparedEffect(Keyed):
    """The ticket of an admitted effect. Hand it to commit, abort or renew as it is.

    The first nine fields are the original's wire form. A ticket goes through JSON and back unchanged.

    Attributes:
        intent: The action's id.
        parent: The hash of the certificate it descends from.
        domain: The contention scope.
        seq: The number it took; per intent, the number to hand downstream as a fencing token.
        tool: The tool's name.
        args: The args at admission.
        vector_clock: What the effect could have known of, itself included.
        read_set: The numbers that the decision rests on.
        agent: Who acts.
        namespace: The tenant.
        attempt: The attempt of the intent, counted from 1.
        token: The fencing token: whoever shows it is the holder.
        fingerprint: Lower hex digest of domain, tool and all args at admission.
        branch: The speculative plan that it belongs to.
        observing: Whether it observes other effects.
        lease_expires_at: When the lease runs out, by the database's clock.
        lease_seconds: How long a renewal extends it.
    """

    model_config = ConfigDict(extra="ignore")

    intent: Name
    parent: CertificateHash | None = None
    domain: Name
    seq: Seq
    tool: Name
    args: Any
    vector_clock: VectorClock
    read_set: ReadSet = ()
    agent: Name
    namespace: Namespace
    attempt: Attempt
    token: UUID
    fingerprint: CertificateHash
    branch: Name | None = None
    observing: bool = False
    lease_expires_at: AwareDatetime | None = None
    lease_seconds: LeaseSeconds

    def _derived(self, args_text: str) -> dict[str, Any]:
        digests = fingerprint(domain=self.domain, tool=self.tool, args=self.args, args_text=args_text)
        return super()._derived(args_text) | {
            "args_digest": digests.args_digest,
        }

    @property
    def args_digest(self) -> bytes:
        """The digest of the domain, tool and args that this ticket came with: another one when it was edited."""
        kept: Any = self.__pydantic_private__
        return kept["args_digest"]

    @classmethod
    def admitted(
        cls,
        request: EffectRequest,
        *,
        namespace: str,
        seq: int,
        vector_clock: VectorClock,
        read_set: tuple[ReadSetEntry, ...],
        attempt: int,
        token: UUID,
        lease_seconds: float,
        lease_expires_at: datetime | None,
        observing: bool = False,
    ) -> Self:
        """Build the ticket of a request that was just admitted, from facts that are trusted."""
        args_text, args_digest = request.args_text, request.fingerprint.args_digest
        facts = {
            "intent": request.intent,
            "parent": request.parent,
            "domain": request.domain,
            "seq": seq,
            "tool": request.tool,
            # A copy of its own, from the text: the request's may have been edited since.
            "args": read_json(args_text),
            "vector_clock": vector_clock,
            "read_set": read_set,
            "agent": request.agent,
            "namespace": namespace,
            "attempt": attempt,
            "token": token,
            "fingerprint": args_digest.hex(),
            "branch": request.branch,
            "observing": observing,
            "lease_expires_at": lease_expires_at,
            "lease_seconds": lease_seconds,
        }
        kept = {
            "args_text": args_text,
            "args_digest": args_digest,
            "intent_key": request.intent_key,
            "domain_key": request.domain_key,
        }
        return trusted(cls, facts, kept)

    def certificate_body(self, result_text: str) -> bytes:
        """Return the bytes that the certificate of this effect is hashed over.

        Args:
            result_text: The canonical JSON of the result.
        """
        return joined_body(
            intent=self.intent,
            parent=self.parent,
            domain=self.domain,
            seq=self.seq,
            tool=self.tool,
            args_text=self.args_text,
            result_text=result_text,
            vector_clock=self.vector_clock,
            read_set=self.read_set,
            agent=self.agent,
        )

    def observed(self, *, vector_clock: VectorClock, read_set: tuple[ReadSetEntry, ...], observing: bool) -> Self:
        """Return the ticket with all that the effect observed, early and late."""
        seen = {"vector_clock": vector_clock, "read_set": read_set, "observing": observing}
        return trusted(type(self), {**self.__dict__, **seen}, self.__pydantic_private__)

    def renewed(self, lease_expires_at: datetime) -> Self:
        """Return the ticket with the end of its renewed lease."""
        return trusted(type(self), {**self.__dict__, "lease_expires_at": lease_expires_at}, self.__pydantic_private__)


def parse_prepared(given: PreparedEffect | Mapping[str, Any]) -> PreparedEffect:
    """Return the ticket, built from its wire form when it is a mapping.

    Raises:
        InvalidRequest: A field is refused; `field` is the path to it.
    """
    if isinstance(given, PreparedEffect):
        return given
    if isinstance(given, Fresh):
        raise InvalidRequest(field="prepared", reason="is the verdict; its ticket is verdict.prepared")
    if isinstance(given, Replay):
        raise InvalidRequest(field="prepared", reason="is a replay, which has no ticket; use verdict.certificate")
    try:
        return PreparedEffect.model_validate(given)
    except ValidationError as error:
        raise invalid_request(error) from None


class Fresh(BaseModel):
    """Admitted: run the tool, then commit `prepared`."""

    model_config = ConfigDict(frozen=True)

    replayed: ClassVar[bool] = False
    prepared: PreparedEffect

    def __init__(self, prepared: PreparedEffect) -> None:
        super().__init__(prepared=prepared)


class Replay(BaseModel):
    """Done before: use the certificate's result, and run nothing."""

    model_config = ConfigDict(frozen=True)

    replayed: ClassVar[bool] = True
    certificate: EffectCert
    attempt: int

    def __init__(self, certificate: EffectCert, attempt: int) -> None:
        super().__init__(certificate=certificate, attempt=attempt)


class Held(BaseModel):
    """The tool ran and its result is durable; the certificate waits until `blockers` and the branch are decided."""

    model_config = ConfigDict(frozen=True)

    intent: str
    attempt: int
    blockers: tuple[Blocker, ...] = ()
