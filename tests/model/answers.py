"""What the library answers, in the model's terms."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from effectfence_pg import (
    Aborted,
    Committed,
    EffectCert,
    EffectStatus,
    FenceError,
    Fresh,
    Held,
    Pending,
    PreparedEffect,
    ReadSetUnsettled,
    Replay,
    RolledBack,
)
from effectfence_pg.values import Settled
from tests.model.state import COMMITTED, IN_FLIGHT, Verdict

if TYPE_CHECKING:
    from tests.model.state import Key

COMPENSATION = re.compile(r"compensation:(\d+):([0-9a-f]{64})")


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def name_of(intent: str, undoes: int) -> str:
    """What the library calls an effect that the model calls by what it undoes."""
    return intent if undoes == 0 else f"compensation:{undoes}:{digest(intent)}"


class Answers:
    """`intents`: everything that can be undone, to be recognised in the name of its compensation."""

    def __init__(self, intents: tuple[str, ...]) -> None:
        self._intents = {digest(intent): intent for intent in intents}

    def refusal(self, error: FenceError) -> Verdict:
        blockers = getattr(error, "blockers", ())
        moved: tuple[tuple[str, int, int], ...] = ()
        if isinstance(error, ReadSetUnsettled):
            blockers = [blocker for entry in error.entries for blocker in entry.blockers]
        elif entries := getattr(error, "entries", ()):
            moved = tuple((entry.domain, entry.seq, entry.live) for entry in entries)
        return Verdict(
            error.code,
            blockers=self._named(blockers),
            moved=moved,
            held=getattr(error, "held", False),
            fallen=self._fallen(getattr(error, "effects", ())),
        )

    def outcome(self, answer: Any) -> Verdict:
        if isinstance(answer, int):
            return Verdict("", count=answer)
        return self._about_many(answer) or self._about_one(answer)

    def _about_many(self, answer: Any) -> Verdict | None:
        match answer:
            case Committed():
                return Verdict("committed", count=answer.effects)
            case Aborted():
                return Verdict("aborted", blockers=self._named(answer.blockers), fallen=self._fallen(answer.effects))
            case Pending():
                return Verdict("pending", blockers=self._named(answer.blockers))
            case Settled():
                return Verdict("settled", count=answer.fenced + answer.committed + answer.aborted)
        return None

    def _about_one(self, answer: Any) -> Verdict:
        code, state, subject, facts = "", None, answer, {}
        match answer:
            case Fresh():
                code, state, subject = "fresh", IN_FLIGHT, answer.prepared
            case PreparedEffect():
                state = IN_FLIGHT
            case Replay():
                code, state = "replay", COMMITTED
                subject = answer.certificate.model_copy(update={"attempt": answer.attempt})
            case EffectCert():
                code, state = "committed", COMMITTED
            case Held():
                code, facts = "held", {"blockers": self._named(answer.blockers)}
            case RolledBack():
                code, state, facts = "rolled_back", answer.state, {"fallen": self._fallen(answer.effects)}
            case EffectStatus():
                code, state = "reconciled", answer.state
        return Verdict(code, self._key(subject.intent, subject.attempt), state, **facts)

    def _key(self, name: str, attempt: int) -> Key:
        found = COMPENSATION.fullmatch(name)
        return (name, 0, attempt) if found is None else (self._intents[found[2]], int(found[1]), attempt)

    def _named(self, effects: Any) -> tuple[tuple[str, int, str], ...]:
        return tuple(sorted((self._key(e.intent, e.attempt)[0], e.attempt, e.state) for e in effects))

    def _fallen(self, effects: Any) -> tuple[tuple[Key, str, bool], ...]:
        return tuple((self._key(e.intent, e.attempt), e.state, e.due) for e in effects)
