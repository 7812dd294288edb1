"""Whether the model and the fence said the same, and stored the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.model.interface import Rows
    from tests.model.state import Key, Verdict

BLOCKED = {"closure_pending", "closure_aborted", "held", "pending", "aborted"}
"""Answers that name what stands in the way."""

FALLING = {"rolled_back", "aborted", "closure_aborted"}
"""Answers that list what fell; asked again they list it again, which the model does not."""

MOVED = {"read_set_stale", "domain_race"}
COUNTED = {"swept", "reserved"}


def verdicts_differ(verb: str, model: Verdict, real: Verdict, edges: frozenset[tuple[Key, Key]]) -> Iterator[str]:
    """What of an answer is not as the model says. Facts that only one of the two tells are not compared."""
    if model.code != real.code:
        yield f"the code is {real.code} and not {model.code}"
        return
    for name in ("key", "state"):
        expected, found = getattr(model, name), getattr(real, name)
        if None not in (expected, found) and expected != found:
            yield f"it is about {found} and not {expected}"
    if model.code in BLOCKED and real.blockers != model.blockers:
        yield f"blockers are {real.blockers} and not {model.blockers}"
    if model.code == "intent_in_flight" and model.held and (real.held, real.blockers) != (True, model.blockers):
        yield f"held by {real.held} {real.blockers} and not {model.blockers}"
    if model.code == "read_set_unsettled" and not _same_doubts(model, real):
        yield f"unsettled by {real.blockers} and not {model.blockers}"
    if model.code in MOVED and sorted(real.moved) != sorted(model.moved):
        yield f"moved are {real.moved} and not {model.moved}"
    if _count(verb, model) != (real.count if _count(verb, model) is not None else None):
        yield f"the count is {real.count} and not {_count(verb, model)}"
    if model.fallen and real.code in FALLING and sorted(real.fallen) != sorted(model.fallen):
        yield f"fallen are {real.fallen} and not {model.fallen}"
    yield from _misordered(real, edges)


def _same_doubts(model: Verdict, real: Verdict) -> bool:
    """An observed intent that is unfit is named alone, though there are more."""
    return set(real.blockers) <= set(model.blockers) and bool(real.blockers) == bool(model.blockers)


def _count(verb: str, model: Verdict) -> int | None:
    if model.code in COUNTED or (verb == "promote" and model.code == "committed"):
        return model.count
    if model.code == "settled":
        return sum(move.cause in ("lease_expired", "settled", "closure_dead", "cascade") for move in model.moves)
    return None


def _misordered(real: Verdict, edges: frozenset[tuple[Key, Key]]) -> Iterator[str]:
    """What fell is listed dependents first, so that it can be undone in that order."""
    place = {key: at for at, (key, _, _) in enumerate(real.fallen)}
    for observer, observed in edges:
        if observer in place and observed in place and place[observer] > place[observed]:
            yield f"{observed} is listed before its dependent {observer}"


def rows_differ(model: Rows, real: Rows) -> Iterator[str]:
    """What is stored and is not as the model says, or the other way round."""
    for name in ("effects", "domains", "branches", "certificates"):
        expected, found = getattr(model, name), getattr(real, name)
        for key in sorted({*expected, *found}, key=str):
            if expected.get(key) != found.get(key):
                yield f"{name} {key}: the model has {expected.get(key)}, the database {found.get(key)}"
    if model.edges != real.edges:
        yield f"edges: the model alone has {model.edges - real.edges}, the database alone {real.edges - model.edges}"
