"""What an error of a tool proves about its effect: nothing, unless the caller declares otherwise.

The table tells kinds of errors apart, so that the record says what was seen and a predicate can ask for it. Libraries are
recognised by the names of their classes and are not imported. Even an error that shows that *this* request was never sent does
not release the intent by itself: the tool may have sent another one before.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, cast

from effectfence_pg.values import AbortEffect


class Kind(StrEnum):
    """What an error is a sign of."""

    REFUSED = "connection_refused"
    NAME = "name_not_resolved"
    TLS = "tls_failed"
    CONNECT_TIMEOUT = "connect_timeout"
    POOL_TIMEOUT = "pool_timeout"
    NOT_CONNECTED = "not_connected"
    BAD_REQUEST = "request_malformed"
    WRITE_TIMEOUT = "write_timeout"
    READ_TIMEOUT = "read_timeout"
    RESET = "connection_reset"
    MALFORMED = "answer_malformed"
    HTTP_429 = "http_429"
    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    OTHER = "other"


NEVER_SENT: Final = frozenset(
    {Kind.REFUSED, Kind.NAME, Kind.TLS, Kind.CONNECT_TIMEOUT, Kind.POOL_TIMEOUT, Kind.NOT_CONNECTED, Kind.BAD_REQUEST}
)
"""Kinds of errors that come before the first byte of a request."""

_BY_NAME: Final = {
    "httpx.ConnectTimeout": Kind.CONNECT_TIMEOUT,
    "httpx.PoolTimeout": Kind.POOL_TIMEOUT,
    "httpx.WriteTimeout": Kind.WRITE_TIMEOUT,
    "httpx.ReadTimeout": Kind.READ_TIMEOUT,
    "httpx.ConnectError": Kind.NOT_CONNECTED,
    "httpx.UnsupportedProtocol": Kind.BAD_REQUEST,
    "httpx.LocalProtocolError": Kind.BAD_REQUEST,
    "httpx.InvalidURL": Kind.BAD_REQUEST,
    "httpx.RemoteProtocolError": Kind.RESET,
    "httpx.ReadError": Kind.RESET,
    "httpx.WriteError": Kind.RESET,
    "httpx.CloseError": Kind.RESET,
    "httpx.DecodingError": Kind.MALFORMED,
    "requests.exceptions.ConnectTimeout": Kind.CONNECT_TIMEOUT,
    "requests.exceptions.ReadTimeout": Kind.READ_TIMEOUT,
    "requests.exceptions.SSLError": Kind.TLS,
    "requests.exceptions.ProxyError": Kind.NOT_CONNECTED,
    "requests.exceptions.MissingSchema": Kind.BAD_REQUEST,
    "requests.exceptions.InvalidSchema": Kind.BAD_REQUEST,
    "requests.exceptions.InvalidURL": Kind.BAD_REQUEST,
    "requests.exceptions.ChunkedEncodingError": Kind.RESET,
    "requests.exceptions.ContentDecodingError": Kind.MALFORMED,
    "requests.exceptions.JSONDecodeError": Kind.MALFORMED,
    # requests says ConnectionError for what was refused and for what was reset: the cause underneath tells them apart.
    "urllib3.exceptions.NameResolutionError": Kind.NAME,
    "urllib3.exceptions.ConnectTimeoutError": Kind.CONNECT_TIMEOUT,
    "urllib3.exceptions.NewConnectionError": Kind.NOT_CONNECTED,
    "urllib3.exceptions.ReadTimeoutError": Kind.READ_TIMEOUT,
    "urllib3.exceptions.ProtocolError": Kind.RESET,
    "asyncio.exceptions.CancelledError": Kind.CANCELLED,
    "json.decoder.JSONDecodeError": Kind.MALFORMED,
}
"""Classes by their names, subclasses included. The most telling error of a chain of causes decides."""

_BY_CLASS: Final[tuple[tuple[type[BaseException], Kind], ...]] = (
    (ssl.SSLCertVerificationError, Kind.TLS),
    (ConnectionRefusedError, Kind.REFUSED),
    (socket.gaierror, Kind.NAME),
    (ConnectionError, Kind.RESET),
    (TimeoutError, Kind.TIMEOUT),
)

_TELLING: Final = (
    Kind.REFUSED,
    Kind.NAME,
    Kind.TLS,
    Kind.CONNECT_TIMEOUT,
    Kind.READ_TIMEOUT,
    Kind.WRITE_TIMEOUT,
    Kind.RESET,
)
_TIMEOUTS: Final = (Kind.CONNECT_TIMEOUT, Kind.POOL_TIMEOUT, Kind.READ_TIMEOUT, Kind.WRITE_TIMEOUT)
_HTTPX: Final = frozenset({"httpx", "httpcore", "httpx2", "httpcore2"})
MAX_CHAIN: Final = 16
MAX_NAME: Final = 512
"""Characters of a class's name that go on record."""

NoEffect = type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool]
"""Which errors of a tool say that nothing happened: exception types, or a predicate."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What an error proves, and the words for the record: classes and kinds, never a message, which may hold a secret."""

    kind: Kind
    effect: AbortEffect
    reason: str


def classify(error: BaseException) -> Kind:
    """The kind of an error, read off its class and the classes of what caused it."""
    status = _status(error)
    if status is not None:
        if status == 429:  # noqa: PLR2004 (too many requests)
            return Kind.HTTP_429
        return Kind.HTTP_5XX if status >= 500 else Kind.HTTP_4XX  # noqa: PLR2004
    kinds = _kinds(error)
    return next((kind for kind in kinds if kind in _TELLING), kinds[0] if kinds else Kind.OTHER)


def never_sent(error: BaseException) -> bool:
    """For `no_effect`, when the tool sends one request and nothing else: whether the error came before its first byte.

    Every error that led to this one counts: a try that was refused proves nothing about the one before it, which timed out.
    """
    kinds = _kinds(error)
    return bool(kinds) and NEVER_SENT.issuperset(kinds) and _status(error) is None


def judge(error: BaseException, no_effect: NoEffect) -> Proof:
    """What becomes of the attempt whose tool raised this."""
    kind = classify(error)
    declared = _declared(error, no_effect)
    words = "declared as no effect" if declared else "outcome unknown"
    status = _status(error)
    shown = f"{kind} {status}" if status is not None else kind
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")[:MAX_NAME]
    return Proof(kind, AbortEffect.NONE if declared else AbortEffect.UNKNOWN, f"{name} [{shown}]: {words}")


def _declared(error: BaseException, no_effect: NoEffect) -> bool:
    try:
        if isinstance(no_effect, type | tuple):
            return isinstance(error, no_effect)
        return no_effect(error) is True
    except Exception as broken:  # noqa: BLE001 (a predicate that fails has declared nothing)
        error.add_note(f"no_effect failed with {type(broken).__name__}: the outcome is taken as unknown")
        return False


def _kinds(error: BaseException) -> list[Kind]:
    """The kinds of the error and of what led to it: what it was raised from or after, and what libraries carry inside."""
    found: list[tuple[BaseException, Kind | None]] = [(error, None)]
    kinds: list[Kind] = []
    for cause, around in found:
        kind = _kind(cause)
        # The timeout inside of a connect timeout is that timeout.
        if kind is not None and not (kind == Kind.TIMEOUT and around in _TIMEOUTS):
            kinds.append(kind)
        more: tuple[Any, ...] = (cause.__cause__, cause.__context__, _attribute(cause, "reason"), _first(cause))
        found += [
            (inner, kind)
            for inner in more
            if isinstance(inner, BaseException) and all(inner is not known for known, _ in found)
        ]
        if len(found) > MAX_CHAIN:
            # Too much happened to say anything about.
            return [*kinds, Kind.OTHER]
    return kinds


def _kind(error: BaseException) -> Kind | None:
    for base in type(error).__mro__:
        # httpx and what is underneath name their errors where they make them; people know them by the package.
        package = base.__module__.partition(".")[0]
        module = "httpx" if package in _HTTPX else base.__module__
        if kind := _BY_NAME.get(f"{module}.{base.__name__}"):
            return kind
    return next((kind for base, kind in _BY_CLASS if isinstance(error, base)), None)


def _status(error: BaseException) -> int | None:
    """The HTTP status of httpx's HTTPStatusError, requests' HTTPError and their likes."""
    status = _attribute(_attribute(error, "response"), "status_code")
    return status if isinstance(status, int) and 100 <= status < 1000 else None  # noqa: PLR2004


def _first(error: BaseException) -> Any:
    """What an error was made with."""
    args: Any = _attribute(error, "args")
    return next(iter(cast("tuple[Any, ...]", args)), None) if isinstance(args, tuple) else None


def _attribute(holder: Any, name: str) -> Any:
    """What an object says of itself; None when it has nothing to say, or fails in saying it."""
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 (a property of the caller's may raise anything, and its error is no proof)
        return None
