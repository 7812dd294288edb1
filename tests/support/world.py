"""A namespace to act in, with short ways into every state an effect can be in."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from effectfence_pg import EffectCert, EffectRequest, EffectStatus, Fence, FenceConfig, Fresh, PreparedEffect, Replay
from effectfence_pg.values import to_json_value
from effectfence_pg.values.canonical import canonical_json
from tests.support.rows import Snapshot, all_of, change, expire_lease, one, rows
from tests.support.witness import Witness

STATES = (
    "in_flight",
    "expired",
    "executed",
    "committed",
    "failed",
    "aborted",
    "aborted_in_flight",
    "released",
    "superseded",
)
"""What `World.put` can make; `expired` is in flight with a lease that ran out and that nobody has fenced."""


class World:
    """One namespace: a fence to act through, and the database to look at behind its back."""

    def __init__(self, engine: sa.Engine, namespace: str, config: FenceConfig | None = None) -> None:
        self.engine = engine
        self.namespace = namespace
        self.fence = Fence(engine, namespace=namespace, config=config)

    def request(self, intent: str = "charge:1", **more: Any) -> EffectRequest:
        """A request with everything that a request needs."""
        facts = {"domain": f"of:{intent}", "tool": "charge", "agent": "agent-a", "args": {"cents": 4900}}
        return EffectRequest(intent=intent, **{**facts, **more})

    def admit(self, intent: str = "charge:1", **more: Any) -> PreparedEffect:
        """The ticket of a new effect in flight."""
        return self.admit_request(self.request(intent, **more))

    def admit_request(self, request: EffectRequest) -> PreparedEffect:
        """The ticket of a request that must be admitted."""
        admission = self.fence.prepare(request)
        assert isinstance(admission, Fresh)
        return admission.prepared

    def commit(self, intent: str = "charge:1", result: Any = "done", **more: Any) -> EffectCert:
        """The certificate of a new effect."""
        certificate = self.fence.commit(self.admit(intent, **more), result)
        assert isinstance(certificate, EffectCert)
        return certificate

    def hold(self, intent: str = "charge:1", result: Any = "done", **more: Any) -> PreparedEffect:
        """The ticket of an effect that ran and waits for a decision.

        Something that is executed because of itself alone cannot come out of the verbs tested here (a branch would do
        it), so it is written behind their back.
        """
        prepared = self.admit(intent, **more)
        self.execute(intent, result)
        return prepared

    def execute(self, intent: str, result: Any = "done") -> None:
        """Make an effect in flight an executed one, with the transition that a verb would have written."""
        text = canonical_json(to_json_value(result, field="result"))
        self.edit(intent, state="executed", result=text, lease_expires_at=None)
        change(
            self.engine,
            "INSERT INTO effectfence.transitions (namespace, intent_key, attempt, version, from_state, to_state, cause, actor) "
            "SELECT namespace, intent_key, attempt, version, 'in_flight', 'executed', 'executed', agent "
            "FROM effectfence.effects WHERE namespace = :namespace AND intent = :intent AND state = 'executed'",
            namespace=self.namespace,
            intent=intent,
        )

    def put(self, state: str, intent: str = "charge:1", **more: Any) -> PreparedEffect:
        """The ticket of an attempt in that state."""
        if state == "executed":
            return self.hold(intent, **more)
        if state == "aborted_in_flight":
            self.hold(f"base:{intent}", agent="agent-z")
            prepared = self.admit(intent, observes=(f"base:{intent}",), **more)
            self.fence.abort(self.ticket(f"base:{intent}"), "rolled back")
            return prepared
        if state == "superseded":
            more = {**more, "on_lease_expiry": "takeover"}
        prepared = self.admit(intent, **more)
        if state == "committed":
            self.fence.commit(prepared, "done")
        elif state == "failed":
            self.fence.abort(prepared, "it went wrong")
        elif state == "released":
            self.fence.abort(prepared, "never sent", effect="none")
        elif state == "aborted":
            self.execute(intent)
            self.fence.abort(prepared, "rolled back")
        elif state in {"expired", "superseded"}:
            self.expire(intent)
        if state == "superseded":
            assert isinstance(self.fence.prepare(self.request(intent, **more)), Fresh)
        return prepared

    def expire(self, intent: str = "charge:1") -> None:
        """Let the lease of an intent run out."""
        expire_lease(self.engine, self.namespace, intent)

    def edit(self, intent: str, **columns: Any) -> None:
        """Change columns of the current attempt behind the library's back."""
        assignments = ", ".join(f"{name} = :{name}" for name in columns)
        edited = change(
            self.engine,
            f"UPDATE effectfence.effects SET {assignments}, version = version + 1 "
            "WHERE namespace = :namespace AND intent = :intent AND attempt = (SELECT max(attempt) "
            "FROM effectfence.effects WHERE namespace = :namespace AND intent = :intent)",
            unguarded=self.state(intent) == "committed",
            namespace=self.namespace,
            intent=intent,
            **columns,
        )
        assert edited == 1

    def ticket(self, intent: str) -> PreparedEffect:
        """The ticket of the current attempt, made from the stored row."""
        row = self.effect(intent)
        return PreparedEffect(
            **{name: row[name] for name in ("intent", "parent", "domain", "seq", "tool", "agent", "attempt", "token")},
            args=json.loads(row["args"]),
            vector_clock=json.loads(row["vector_clock"]),
            read_set=json.loads(row["read_set"]),
            namespace=self.namespace,
            fingerprint=row["args_digest"].hex(),
            observing=row["observing"],
            lease_seconds=row["lease_seconds"],
        )

    def effect(self, intent: str = "charge:1", attempt: int | None = None) -> dict[str, Any]:
        """The stored row of an attempt, the newest by default."""
        with self.engine.connect() as connection:
            found = connection.execute(
                sa.text(
                    "SELECT * FROM effectfence.effects WHERE namespace = :namespace AND intent = :intent "
                    "AND (:attempt IS NULL OR attempt = :attempt) ORDER BY attempt DESC LIMIT 1"
                ).bindparams(sa.bindparam("attempt", type_=sa.Integer)),
                {"namespace": self.namespace, "intent": intent, "attempt": attempt},
            ).one()
        return dict(found._mapping)

    def state(self, intent: str = "charge:1", attempt: int | None = None) -> str:
        """The stored state of an attempt, the newest by default."""
        return self.effect(intent, attempt)["state"]

    def status(self, intent: str = "charge:1") -> EffectStatus:
        return self.fence.status(intent)

    def seq(self, domain: str) -> int:
        """The stored number of a domain."""
        query = (
            "SELECT coalesce(max(seq), 0) FROM effectfence.domains WHERE namespace = :namespace AND domain = :domain"
        )
        return one(self.engine, query, namespace=self.namespace, domain=domain)

    def history(self, intent: str = "charge:1") -> list[tuple[int, str | None, str, str, str]]:
        """The transitions of an intent: attempt, from, to, cause, actor."""
        return all_of(
            self.engine,
            "SELECT t.attempt, t.from_state, t.to_state, t.cause, t.actor FROM effectfence.transitions t "
            "WHERE t.namespace = :namespace AND t.intent_key = sha256(convert_to(:intent, 'UTF8')) "
            "ORDER BY t.attempt, t.version",
            namespace=self.namespace,
            intent=intent,
        )

    def moves(self, intent: str = "charge:1") -> list[tuple[str | None, str, str]]:
        """The same without attempt and actor."""
        return [(before, after, cause) for _, before, after, cause, _ in self.history(intent)]

    def edges(self, intent: str) -> set[tuple[str, int, str]]:
        """What an intent's newest attempt observed: intent, attempt, and how."""
        return set(
            all_of(
                self.engine,
                "SELECT o.intent, o.attempt, g.via FROM effectfence.edges g "
                "JOIN effectfence.effects e USING (namespace, intent_key, attempt) "
                "JOIN effectfence.effects o ON o.namespace = g.namespace AND o.intent_key = g.observed_key "
                "AND o.attempt = g.observed_attempt WHERE g.namespace = :namespace AND e.intent = :intent "
                "AND e.attempt = (SELECT max(attempt) FROM effectfence.effects x "
                "WHERE x.namespace = e.namespace AND x.intent_key = e.intent_key)",
                namespace=self.namespace,
                intent=intent,
            )
        )

    def rows(self) -> Snapshot:
        """Everything stored in this namespace."""
        return rows(self.engine, self.namespace)


def perform(world: World, ledger: Witness, run: Callable[[Any], Any], intent: str = "charge:1", **more: Any) -> Any:
    """What every caller does: ask, run the tool only when told to, report; the recorded result in either case."""
    verdict = world.fence.prepare(world.request(intent, **more))
    if isinstance(verdict, Replay):
        return verdict.certificate.result
    ledger.happened(intent)
    certificate = world.fence.commit(verdict.prepared, run(more.get("args")))
    assert isinstance(certificate, EffectCert)
    return certificate.result
