"""A few cases told from beginning to end, for people who want to see the protocol at work."""

from __future__ import annotations

from tests.model.interface import Model
from tests.model.state import Request, Ticket, Verdict


def admit(model: Model, intent: str, domain: str, **more) -> Ticket:
    verdict = model.call("prepare", Request(intent, domain, **more))
    assert verdict.code == "fresh", verdict
    return verdict.ticket


def hold(model: Model, intent: str, domain: str, **more) -> Ticket:
    ticket = admit(model, intent, domain, **more)
    assert model.call("commit", ticket, "done", "hold").code == "held"
    return ticket


def states(model: Model) -> dict[str, str]:
    return {key[0]: row.state for key, row in model.rows().effects.items()}


def test_what_rests_on_a_contradicted_write_is_never_certified() -> None:
    model = Model()
    hold(model, "write_config", "config", branch="b")
    deploy = admit(model, "deploy", "service", branch="c", entries=(("config", 1, True),))
    assert model.call("abort_branch", "b").fallen[0][0] == ("deploy", 0, 1), "dependents first"
    assert model.call("commit", deploy, "version 2").code == "closure_aborted"
    assert model.call("reconcile_branch", "c").code == "aborted"
    assert states(model) == {"write_config": "aborted", "deploy": "aborted"}
    assert model.rows().certificates == {}


def test_a_diamond_commits_as_a_whole_or_not_at_all() -> None:
    model = Model()
    hold(model, "base", "D", branch="p")
    for name in ("left", "right"):
        hold(model, name, name, observes=("base",))
    hold(model, "bottom", "E", observes=("left", "right"))
    assert model.call("promote", intent="bottom").code == "closure_pending", "an open branch decides for itself"
    assert model.call("promote", branch="p").count == 1
    assert model.call("promote", intent="bottom").count == 3
    assert set(states(model).values()) == {"committed"}


def test_a_dead_member_takes_its_branch_with_it_and_not_what_the_branch_rests_on() -> None:
    model = Model()
    hold(model, "base", "D", branch="q")
    hold(model, "member", "E", branch="p", observes=("base",))
    unknown = admit(model, "unknown", "F", branch="p")
    assert model.call("abort", unknown).state == "failed"
    assert model.call("promote", branch="p").code == "closure_aborted"
    assert states(model) == {"base": "executed", "member": "aborted", "unknown": "aborted"}
    assert model.rows().branches == {"p": "aborted", "q": "open"}


def test_branches_that_observed_each_other_can_only_be_rolled_back() -> None:
    model = Model()
    hold(model, "a", "D", branch="p")
    hold(model, "b", "E", branch="q", observes=("a",))
    hold(model, "c", "F", branch="p", observes=("b",))
    assert model.call("reconcile_branch", "p").code == "pending"
    assert model.call("reconcile_branch", "q").code == "pending"
    assert model.call("abort_branch", "q").code == "aborted"
    assert states(model) == {"a": "executed", "b": "aborted", "c": "aborted"}


def test_an_undisturbed_compare_and_set_commits() -> None:
    """Its own number moved the domain, nobody else: the entry is compared with that."""
    model = Model()
    first = admit(model, "first", "D", expected_seq=0)
    assert model.call("commit", first, "done").code == "committed"
    second = admit(model, "second", "D", expected_seq=1)
    assert model.call("prepare", Request("third", "D", expected_seq=1)).code == "domain_race"
    assert model.call("commit", second, "done").code == "committed"


def test_a_compensation_undoes_once_and_releases_what_it_undid() -> None:
    model = Model()
    credit = hold(model, "credit", "D", branch="p")
    assert model.call("abort", credit).fallen == ((("credit", 0, 1), "executed", True),)
    undo = model.call("prepare_compensation", "credit", 1)
    assert model.call("prepare_compensation", "credit", 1).code == "intent_in_flight"
    assert model.call("reconcile", "credit", 1, "happened").code == "not_reconcilable"
    assert model.call("commit", undo.ticket, "refunded").code == "committed"
    assert model.call("prepare_compensation", "credit", 1).code == "replay"
    assert states_of(model, "credit") == {(0, 1): "released", (1, 1): "committed"}


def states_of(model: Model, intent: str) -> dict[tuple[int, int], str]:
    return {key[1:]: row.state for key, row in model.rows().effects.items() if key[0] == intent}


def test_every_move_says_why_by_whom_and_from_where() -> None:
    model = Model()
    hold(model, "base", "D", branch="p", agent="ann")
    admit(model, "reader", "E", observes=("base",), agent="bob")
    verdict: Verdict = model.call("abort_branch", "p", actor="olga")
    told = [(move.key[0], move.from_state, move.to_state, move.cause, move.actor) for move in verdict.moves]
    assert told == [
        ("base", "executed", "aborted", "branch_aborted", "olga"),
        ("reader", "in_flight", "aborted", "cascade", "olga"),
    ]
    assert verdict.moves[1].origin == ("base", 0, 1)
    assert [move.to_state for move in model.history if move.key[0] == "base"] == ["in_flight", "executed", "aborted"]
