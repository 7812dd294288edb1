"""Args captured by value, and validation errors as refusals."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, field_serializer, field_validator

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.values.canonical import JsonValue, canonical_json, read_json, to_json_value
from effectfence_pg.values.identity import key_of


class Captured(BaseModel):
    """A frozen value with an `args` field that is copied at construction.

    The canonical text of the args is kept beside the copy and is what counts: whoever edits `args` in place, or the
    object they were given as, changes nothing that is admitted, compared or written.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @field_validator("args", mode="plain", check_fields=False)
    @classmethod
    def _copy_args(cls, value: Any) -> JsonValue:
        return to_json_value(value, field="args", nul=False)

    @field_serializer("args", check_fields=False)
    def _write_args(self, _value: Any) -> Any:
        return read_json(self.args_text)

    def model_post_init(self, _context: Any, /) -> None:
        """Keep the canonical text, and what the class derives from it."""
        self._keep(self._derived(canonical_json(self.__dict__["args"])))

    def _derived(self, args_text: str) -> dict[str, Any]:
        """Return the facts to keep beside the fields."""
        return {"args_text": args_text}

    def _keep(self, facts: dict[str, Any]) -> None:
        # Pydantic's own place for private facts, copied, compared and pickled with the model. Its accessors look a
        # name up in five places, which costs more than the digests.
        object.__setattr__(self, "__pydantic_private__", facts)

    @property
    def args_text(self) -> str:
        """The canonical JSON of the args, as they were at construction."""
        kept: Any = self.__pydantic_private__
        return kept["args_text"]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy; with `update` it is validated anew, since its text and digests are another's.

        Raises:
            ValidationError: An updated field is refused.
        """
        if not update:
            return super().model_copy(deep=deep)
        facts = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self).model_validate({**facts, "args": read_json(self.args_text), **update})


class Keyed(Captured):
    """A captured value with an `intent` and a `domain`, declared where each stands in the wire form, and the keys of both."""

    def _derived(self, args_text: str) -> dict[str, Any]:
        facts = self.__dict__
        keys = {"intent_key": key_of(facts["intent"]), "domain_key": key_of(facts["domain"])}
        return super()._derived(args_text) | keys

    @property
    def intent_key(self) -> bytes:
        """The 32-byte key of the intent."""
        kept: Any = self.__pydantic_private__
        return kept["intent_key"]

    @property
    def domain_key(self) -> bytes:
        """The 32-byte key of the domain."""
        kept: Any = self.__pydantic_private__
        return kept["domain_key"]


def invalid_request(error: ValidationError) -> InvalidRequest:
    """Turn pydantic's error into the refusal of its first faulty field."""
    first = error.errors(include_url=False, include_input=False)[0]
    *above, last = first["loc"] or ("request",)
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InvalidRequest):
        # The refusal of a part of args knows the rest of the path.
        return InvalidRequest(field=_path(above) + _joint(above) + cause.field, reason=cause.reason)
    reasons = {"missing": "is required", "extra_forbidden": "is no known field"}
    reason = reasons.get(first["type"]) or (str(cause) if cause else first["msg"])
    return InvalidRequest(field=_path([*above, last]), reason=reason)


def _joint(parts: list[int | str]) -> str:
    return "." if parts else ""


def _path(parts: list[int | str]) -> str:
    path = ""
    for part in parts:
        # A name that came from outside may be of any length.
        path += f"[{part}]" if isinstance(part, int) else f"{'.' if path else ''}{part[:64]}"
    return path
