"""What an action is: the digests that decide whether two requests ask for the same thing."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, cast

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.values.canonical import by_value, canonical_json, has_float, quoted

if TYPE_CHECKING:
    from collections.abc import Collection

    from effectfence_pg.values.canonical import JsonValue


class Fingerprint(NamedTuple):
    """The digests of an action, 32 bytes each.

    Attributes:
        args_digest: SHA-256 over domain, tool and all args, numbers compared by value.
        identity_digest: The same over the declared args only; equal to `args_digest` when none are declared.
        identity_fields: The sorted names of the declared args, or None.
    """

    args_digest: bytes
    identity_digest: bytes
    identity_fields: tuple[str, ...] | None = None


def key_of(text: str) -> bytes:
    """Return the 32-byte key of an intent, a domain or a branch: the SHA-256 of its UTF-8."""
    return sha256(text.encode()).digest()


def fingerprint(
    *,
    domain: str,
    tool: str,
    args: JsonValue,
    identity: Collection[str] | None = None,
    args_text: str | None = None,
) -> Fingerprint:
    """Digest what the action is.

    Args:
        domain: The contention scope.
        tool: The tool's name.
        args: A plain JSON value.
        identity: The names of the args that say what the action is; None: all of them.
        args_text: The canonical text of `args`, when it is at hand.

    Raises:
        InvalidRequest: `identity` is empty or names something that args does not have. Its `field` is `identity`.
    """
    if args_text is None or has_float(args):
        args_text = canonical_json(by_value(args))
    where, what = f'"domain":{quoted(domain)}', f'"tool":{quoted(tool)}'
    args_digest = sha256(f'{{"args":{args_text},{where},{what}}}'.encode()).digest()
    if identity is None:
        return Fingerprint(args_digest, args_digest)
    names = identity_names(identity, args)
    members = cast("dict[str, JsonValue]", args)
    chosen = canonical_json(by_value({name: members[name] for name in names}))
    identity_digest = sha256(f'{{{where},"identity":{chosen},{what}}}'.encode()).digest()
    return Fingerprint(args_digest, identity_digest, names)


def identity_names(identity: Collection[str], args: JsonValue) -> tuple[str, ...]:
    """Return the declared names, sorted and without repetition, all of them keys of `args`.

    Raises:
        InvalidRequest: None declared, args that are no object, or a name that args does not have.
    """
    names = tuple(sorted(set(identity)))
    if not names:
        raise InvalidRequest(
            field="identity", reason="names no args; leave it out to identify the action by all of them"
        )
    if not isinstance(args, dict):
        raise InvalidRequest(field="identity", reason="names args, but args is no object")
    missing = [name for name in names if name not in args]
    if missing:
        raise InvalidRequest(field="identity", reason=f"args has no {missing[0][:64]!r}")
    return names


def same_action(stored: Fingerprint, given: Fingerprint) -> bool:
    """Tell whether `given` asks for the action on record.

    Equal domain, tool and full args are always the same action; otherwise the stored declaration decides, and another
    declaration is a mismatch.
    """
    return difference(stored, given) is None


def difference(
    stored: Fingerprint,
    given: Fingerprint,
    *,
    domains: tuple[str, str] | None = None,
    tools: tuple[str, str] | None = None,
) -> str | None:
    """Name what tells two actions apart: domain, tool, declaration, identity or args; None when they are the same.

    Args:
        stored: The fingerprint on record.
        given: The fingerprint of the request.
        domains: The stored and the given domain, when known; digests alone cannot name it.
        tools: The stored and the given tool, when known.
    """
    if stored.args_digest == given.args_digest:
        return None
    if domains and domains[0] != domains[1]:
        return "domain"
    if tools and tools[0] != tools[1]:
        return "tool"
    if stored.identity_fields != given.identity_fields:
        return "declaration"
    if stored.identity_fields is None:
        return "args"
    return None if stored.identity_digest == given.identity_digest else "identity"
