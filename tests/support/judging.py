"""What a recorded history proves to be broken. The order is that of the world outside; the rows are those at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa

from effectfence_pg import Aborted, ClosurePending, EffectCert, Fresh, Held, PreparedEffect, Replay, RolledBack
from tests.support.histories import Event, History, Key
from tests.support.rows import all_of

VALIDATED = (EffectCert, Held, ClosurePending)
"""The answers to a commit whose read set held."""

LIVES = (*VALIDATED, Fresh, PreparedEffect)
"""Answers that let an attempt go on."""


class End(NamedTuple):
    """What is stored when everybody has stopped."""

    states: dict[Key, str]
    observed: dict[Key, set[Key]]
    certificates: dict[str, str]
    """Hash by intent."""


def stored(engine: sa.Engine, namespace: str) -> End:
    observed: dict[Key, set[Key]] = defaultdict(set)
    for intent, attempt, below, number in all_of(
        engine,
        "SELECT e.intent, e.attempt, o.intent, o.attempt FROM effectfence.edges g "
        "JOIN effectfence.effects e USING (namespace, intent_key, attempt) "
        "JOIN effectfence.effects o ON o.namespace = g.namespace AND o.intent_key = g.observed_key "
        "AND o.attempt = g.observed_attempt WHERE g.namespace = :n",
        n=namespace,
    ):
        observed[intent, attempt].add((below, number))
    states = "SELECT intent, attempt, state FROM effectfence.effects WHERE namespace = :n"
    hashes = (
        "SELECT i.intent, c.hash FROM effectfence.certificates c JOIN effectfence.intents i USING (namespace, intent_key) "
        "WHERE c.namespace = :n"
    )
    return End(
        {(intent, attempt): state for intent, attempt, state in all_of(engine, states, n=namespace)},
        dict(observed),
        dict(all_of(engine, hashes, n=namespace)),
    )


def judge(history: History, end: End) -> list[str]:
    """Everything that is wrong, in words."""
    return [
        *i1_at_most_one(history, end),
        *i4_recoverable(history, end),
        *i5_no_storm(history, end),
        *i13_acted_on_what_stood(history, end),
    ]


def i1_at_most_one(history: History, end: End) -> Iterator[str]:
    """One admission for each attempt, no more executions than those, one certificate for each intent, and it is true."""
    admitted = Counter(event.key for event in history.events if isinstance(event.answer, Fresh))
    yield from (f"I1: {key} was admitted {count} times" for key, count in admitted.items() if count > 1)
    yield from (f"I1: {key} ran, and was never admitted" for key in history.ran if key not in admitted)
    for event in history.events:
        told = event.answer.certificate if isinstance(event.answer, Replay) else event.answer
        if isinstance(told, EffectCert) and end.certificates.get(told.intent) != told.hash:
            yield f"I1: {event.verb} answered {told.hash}, and {end.certificates.get(told.intent)} is on record"
    for key, state in end.states.items():
        if state == "committed" and key not in history.ran:
            yield f"I1: {key} is certified, and never ran"


def i4_recoverable(history: History, end: End) -> Iterator[str]:
    """Whoever was told of a certificate, or has one at the end, rests on committed effects only."""
    told = {event.key for event in history.events if isinstance(event.answer, EffectCert)}
    for key in told | {key for key, state in end.states.items() if state == "committed"}:
        for below in end.observed.get(key or ("", 0), ()):
            if end.states[below] != "committed":
                yield f"I4: {key} is certified and observed {below}, which is {end.states[below]}"


def i5_no_storm(history: History, end: End) -> Iterator[str]:
    """From the moment that somebody was told of a rollback, nothing that observed what fell was let go on."""
    fell = _told_of_falls(history)
    revived = {event.key for event in history.events if event.verb == "reconcile" and _is_happened(event)}
    for event in history.events:
        if not isinstance(event.answer, LIVES) or event.key is None:
            continue
        for below in end.observed.get(event.key, ()):
            if below not in revived and fell.get(below, event.began) < event.began:
                yield f"I5: {event.verb} let {event.key} go on, which observed {below}, which had fallen"


def _told_of_falls(history: History) -> dict[Key, int]:
    fell: dict[Key, int] = {}
    for event in history.events:
        if isinstance(event.answer, RolledBack | Aborted):
            for effect in event.answer.effects:
                fell.setdefault((effect.intent, effect.attempt), event.ended)
    return fell


def _is_happened(event: Event) -> bool:
    return event.facts["outcome"] == "happened" and not isinstance(event.answer, Exception)


def validated(history: History) -> dict[Key, Event]:
    """The first commit of each attempt with a read set, where that held."""
    first: dict[Any, Event] = {}
    for event in sorted(history.events, key=lambda each: each.began):
        if event.verb == "commit":
            first.setdefault(event.key, event)
    return {
        key: first[key]
        for key, sight in history.sights.items()
        if sight and key in first and isinstance(first[key].answer, VALIDATED)
    }


def i13_acted_on_what_stood(history: History, end: End) -> Iterator[str]:
    """Whose read set held at prepare and at commit saw what stood until it committed, and nothing that was rolled back."""
    for key, commit in validated(history).items():
        for domain, look in history.sights[key].items():
            between = [c for c in history.changes if c.domain == domain and look.at < c.at < commit.began]
            yield from (f"I13: {key} saw {domain} before {c.key} changed it" for c in between if c.key != key)
            if end.states[key] == "committed":
                undone = {seen: end.states[seen] for seen in look.value if end.states[seen] != "committed"}
                yield from (f"I13: {key} acted on {seen}, which is {state}" for seen, state in undone.items())
