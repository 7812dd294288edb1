"""The fence on PostgreSQL behind the model's interface: the same calls, the same verdicts, the same rows."""

from __future__ import annotations

from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg

from effectfence_pg import Fence, FenceConfig, FenceError, FenceRepository, Fresh, PreparedEffect
from tests.model.answers import Answers, name_of
from tests.model.state import Key, Request, Ticket, Verdict
from tests.model.stored import Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import sqlalchemy as sa

    from effectfence_pg.surface import Surface

LEASE_SECONDS = 86_400.0
"""Leases run out when the test says so, and never by themselves."""

POLICIES = {
    policy: FenceConfig(lease_seconds=LEASE_SECONDS, on_lease_expiry=policy) for policy in ("fence", "takeover")
}


class Real:
    """One namespace of a database. `own_transaction`: each verb runs in a transaction of the caller's."""

    def __init__(
        self, engine: sa.Engine, look: psycopg.Connection[Any], intents: tuple[str, ...], *, own_transaction: bool
    ) -> None:
        self.namespace = f"side-by-side-{uuid4().hex}"
        self.storage = Storage(look, self.namespace)
        self.tickets: dict[Key, list[PreparedEffect]] = {}
        self._engine = engine
        self._own_transaction = own_transaction
        self._fences = {
            policy: Fence(engine, namespace=self.namespace, config=config) for policy, config in POLICIES.items()
        }
        self._answers = Answers(intents)
        self._registered: set[Key] = set()

    @contextmanager
    def _surface(self, policy: str = "fence") -> Iterator[Surface]:
        if not self._own_transaction:
            yield self._fences[policy]
            return
        with self._engine.connect().execution_options(isolation_level="SERIALIZABLE") as connection:
            yield FenceRepository(connection, namespace=self.namespace, config=POLICIES[policy])
            connection.commit()

    def _ask(self, call: Callable[[Surface], Any], policy: str = "fence", done: str | None = None) -> Verdict:
        """Make the call. A refusal is an answer, and what it keeps on record is committed like any other."""
        with self._surface(policy) as surface:
            try:
                answer = call(surface)
            except FenceError as error:
                return self._answers.refusal(error)
        verdict = self._answers.outcome(answer)
        if isinstance(answer, Fresh):
            self.tickets[verdict.key] = [answer.prepared]
        elif isinstance(answer, PreparedEffect):
            self.tickets[verdict.key].append(answer)
        return verdict if done is None else verdict._replace(code=done)

    # -- verbs, with the model's arguments

    def call(self, verb: str, *args: Any, **facts: Any) -> Verdict:
        return getattr(self, verb)(*args, **facts)

    def prepare(self, request: Request, *, note: int = 0, undoable: bool = False) -> Verdict:
        domain, _, what = request.fingerprint.partition("/")
        asked = {
            "intent": request.intent,
            "domain": request.domain,
            "tool": "charge",
            "agent": request.agent,
            "args": {"what": what, "note": note},
            "identity": ("what",),
            "read_set": [{"domain": d, "seq": seq, "settled": settled} for d, seq, settled in request.entries],
            "parent": None if request.parent is None else self._hash(request.parent),
            "known_clock": dict(request.clock),
            "expected_seq": request.expected_seq,
            "on_lease_expiry": request.policy,
            "on_stale": request.on_stale,
            "branch": request.branch,
            "observes": request.observes,
            "compensation": {"tool": "undo", "args": {}} if undoable else None,
        }
        assert domain == request.domain, "the fingerprint of a request covers its domain"
        verdict = self._ask(lambda surface: surface.prepare(asked))  # type: ignore[attr-defined]
        if verdict.code == "fresh" and undoable:
            self._registered.add(verdict.key)
        return verdict

    def _hash(self, parent: Key) -> str:
        hashes = {key: found for found, key in self.storage.read().names.hashes.items()}
        return hashes.get(parent) or sha256(str(parent).encode()).hexdigest()

    def prepare_compensation(self, intent: str, attempt: int, *, agent: str, policy: str) -> Verdict:
        registered = (intent, 0, attempt) in self._registered
        given: dict[str, Any] = {} if registered else {"tool": "undo", "args": {}}
        return self._ask(
            lambda surface: surface.prepare_compensation(intent, attempt=attempt, agent=agent, **given), policy
        )

    def _held_ticket(self, ticket: Ticket, version: int) -> PreparedEffect:
        """The real ticket for one of the model's: any that was handed out, or one that was edited since."""
        given = self.tickets.get(ticket.token)
        if given is None:
            return self._edited(next(iter(self.tickets.values()))[0], token=uuid4())
        prepared = given[version % len(given)]
        facts = {
            "intent": (name_of(ticket.intent, ticket.undoes), prepared.intent),
            "attempt": (ticket.attempt, prepared.attempt),
            "domain": (ticket.domain, prepared.domain),
            "seq": (ticket.seq, prepared.seq),
            "agent": (ticket.agent, prepared.agent),
            "branch": (ticket.branch, prepared.branch),
        }
        changed = {name: asked for name, (asked, held) in facts.items() if asked != held}
        if ticket.fingerprint == "edited":
            changed["args"] = {"what": "edited"}
        return self._edited(prepared, **changed) if changed else prepared

    @staticmethod
    def _edited(prepared: PreparedEffect, **changed: Any) -> PreparedEffect:
        return PreparedEffect.model_validate({**prepared.model_dump(mode="python"), **changed})

    def observe_late(
        self, ticket: Ticket, entries: tuple[tuple[str, int, bool], ...], intents: tuple[str, ...], *, version: int = 0
    ) -> Verdict:
        prepared = self._held_ticket(ticket, version)
        read = tuple({"domain": d, "seq": seq, "settled": settled} for d, seq, settled in entries)
        return self._ask(lambda surface: surface.observe_late(prepared, read, intents), done="observed")

    def commit(self, ticket: Ticket, result: str, closure: str, *, version: int = 0) -> Verdict:
        prepared = self._held_ticket(ticket, version)
        return self._ask(lambda surface: surface.commit(prepared, result, closure=closure))

    def abort(self, ticket: Ticket, effect: str, *, version: int = 0) -> Verdict:
        prepared = self._held_ticket(ticket, version)
        return self._ask(lambda surface: surface.abort(prepared, "given up", effect=effect))

    def renew(self, ticket: Ticket, *, version: int = 0) -> Verdict:
        prepared = self._held_ticket(ticket, version)
        return self._ask(lambda surface: surface.renew(prepared), done="renewed")

    def expire(self, key: Key) -> Verdict:
        self.storage.expire(name_of(*key[:2]), key[2])
        return Verdict("expired", key)

    def sweep(self) -> Verdict:
        return self._ask(lambda surface: surface.sweep(), done="swept")

    def settle(self) -> Verdict:
        return self._ask(lambda surface: surface.settle())

    def promote(self, **what: str) -> Verdict:
        return self._ask(lambda surface: surface.promote(**what))

    def reconcile_branch(self, branch: str) -> Verdict:
        return self._ask(lambda surface: surface.reconcile_branch(branch))

    def abort_branch(self, branch: str) -> Verdict:
        return self._ask(lambda surface: surface.abort_branch(branch, "decided against"))

    def abort_intent(self, intent: str, attempt: int, *, undoes: int = 0) -> Verdict:
        name = name_of(intent, undoes)
        return self._ask(lambda surface: surface.abort_intent(name, attempt=attempt, reason="decided against"))

    def reconcile(self, intent: str, attempt: int, outcome: str, *, undoes: int = 0, **facts: Any) -> Verdict:
        name = name_of(intent, undoes)
        if outcome == "did_not_happen":
            facts["basis"] = "holder_dead"
        facts |= {"attempt": attempt, "outcome": outcome, "operator": "operator", "evidence": "seen"}
        return self._ask(lambda surface: surface.reconcile(name, **facts))

    def reserve(self, domain: str, expected: int) -> Verdict:
        return self._ask(lambda surface: surface.reserve(domain, expected), done="reserved")

    def observe(self, domain: str) -> tuple[int, bool]:
        with self._surface() as surface:
            [entry] = surface.observe(domain)
        return entry.seq, entry.settled
