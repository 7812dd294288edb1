"""What a gateway does with which tool: a TOML file, checked as a whole before anything is served."""

from __future__ import annotations

import tomllib
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.gateway.formats import OfArguments, OfClient, Tenant, fields_of
from effectfence_pg.values.captured import invalid_request
from effectfence_pg.values.names import Name  # noqa: TC001 (pydantic reads it at run time)
from effectfence_pg.values.policies import MAX_LEASE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path


class Action(StrEnum):
    """What is done with a call."""

    FENCE = "fence"
    """It is an effect: one attempt runs it."""
    OBSERVE = "observe"
    """It is a read of a domain: passed through, and the session's later effects rest on it."""
    PASS = "pass"  # noqa: S105 (no password)
    """It is passed through."""


class OnToolError(StrEnum):
    """What becomes of an effect whose tool answered with an error."""

    FENCE = "fence"
    """A result with isError is the outcome and is replayed; an error of the protocol leaves the outcome unknown."""
    RELEASE = "release"
    """It says that nothing happened: the call may be made again."""


class OnExpiry(StrEnum):
    """What becomes of an effect whose gateway was not heard of until its lease ran out."""

    FENCE = "fence"
    TAKEOVER = "takeover"


Seconds = Annotated[float, Field(strict=True, ge=0, le=MAX_LEASE_SECONDS, allow_inf_nan=False)]
Lease = Annotated[float, Field(strict=True, gt=0, le=MAX_LEASE_SECONDS, allow_inf_nan=False)]


class Settings(BaseModel):
    """What a rule may say; where it is silent the defaults of the file speak.

    Attributes:
        on_tool_error: `fence` or `release`.
        wait_seconds: How long a duplicate waits for the call in flight before it is refused.
        lease_seconds: How long an effect may run unheard of; the gateway renews it while the tool runs.
        on_lease_expiry: `fence`, or `takeover` for tools that are idempotent by the key they are sent.
        check_calls: Whether calls are refused whose tool the upstream does not list, or whose arguments its schema does not
            allow. Not for an upstream that takes more than it says.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    on_tool_error: OnToolError | None = None
    wait_seconds: Seconds | None = None
    lease_seconds: Lease | None = None
    on_lease_expiry: OnExpiry | None = None
    check_calls: Annotated[bool, Field(strict=True)] | None = None


class Rule(Settings):
    """What is done with the tools of a pattern. The first rule that fits decides.

    Attributes:
        match: The tool's name, with `*`, `?` and `[...]`.
        action: `fence`, `observe` or `pass`; by the upstream's readOnlyHint when not given.
        intent: A format over the arguments: what the action is called.
        domain: A format over the arguments: what the action, or the read, is about. The intent when not given.
        identity: Arguments that say what the action is; the others may be worded anew by a retry.
    """

    match: Annotated[str, Field(strict=True, min_length=1, max_length=256)]
    action: Action | None = None
    intent: OfArguments | None = None
    domain: OfArguments | None = None
    identity: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _of_use(self) -> Rule:
        if self.action in {Action.OBSERVE, Action.PASS}:
            for name in ("intent", "identity", *Settings.model_fields):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is of no use with action {str(self.action)!r}")
        if self.action == Action.PASS and self.domain is not None:
            raise ValueError("domain is of no use with action 'pass'")
        return self

    def fits(self, tool: str) -> bool:
        """Whether this is about that tool."""
        return fnmatchcase(tool, self.match)


class Defaults(BaseModel):
    """The settings of tools that no rule says anything else about."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    on_tool_error: OnToolError = OnToolError.FENCE
    wait_seconds: Seconds = 30.0
    lease_seconds: Lease = 60.0
    on_lease_expiry: OnExpiry = OnExpiry.FENCE
    check_calls: Annotated[bool, Field(strict=True)] = True


CLIENT_KEYS: Final = ("effectfence/key", "idempotencyKey", "idempotency_key", "idempotency-key")


class Policy(BaseModel):
    """A gateway's policy. Without a file: everything that is not marked read-only is fenced.

    Attributes:
        server: What the upstream is called in intents; its own name when not given.
        namespace: The tenant: fixed, or a format over `client.name`, `client.version`, `meta.KEY` and `header.NAME`.
        agent: Who acts, likewise.
        client_keys: Keys of `_meta` under which a client may name the action itself.
        row_security: Name the tenant to the server in every transaction, for row security by namespace.
        drain_seconds: How long calls in flight may go on when the client is gone.
        defaults: Settings for all tools.
        tool: The rules, in order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    server: Name | None = None
    namespace: Tenant = "default"
    agent: OfClient = "{client.name}"
    client_keys: tuple[Name, ...] = CLIENT_KEYS
    row_security: Annotated[bool, Field(strict=True)] = False
    drain_seconds: Annotated[float, Field(strict=True, ge=0, le=3600)] = 30.0
    defaults: Defaults = Defaults()
    tool: tuple[Rule, ...] = ()

    def check_over_stdio(self) -> None:
        """Refuse what can never be filled where requests have no headers.

        Raises:
            InvalidRequest: A tenant or an agent comes from one.
        """
        for name in ("namespace", "agent"):
            if any(root == "header" for root, *_ in fields_of(getattr(self, name))):
                raise InvalidRequest(field=name, reason="comes from a header, and only clients over HTTP send any")

    def rule(self, tool: str) -> Rule:
        """The first rule that fits; one that says nothing when none does."""
        return next((rule for rule in self.tool if rule.fits(tool)), Rule(match="*"))

    def setting(self, rule: Rule, name: str) -> Any:
        """What the rule says, else the default."""
        said = getattr(rule, name)
        return getattr(self.defaults, name) if said is None else said


def read_policy(path: Path | None) -> Policy:
    """The policy of a file; the default one without a file.

    Raises:
        InvalidRequest: The file cannot be read or is no policy; `field` is the path to what is wrong.
    """
    if path is None:
        return Policy()
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(field="policy", reason=f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(field="policy", reason=f"{path} is no TOML: {error}") from error
    try:
        return Policy.model_validate(found)
    except ValidationError as error:
        raise invalid_request(error) from None
