"""What `effectfence-pg rollback-storm` promises, and that its judge would notice if it were broken."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from effectfence_pg.cli import rollback_storm
from effectfence_pg.cli.app import app
from effectfence_pg.cli.rollback_storm_check import judge
from effectfence_pg.cli.rollback_storm_fenced import FencedSide
from effectfence_pg.cli.rollback_storm_incident import naive_incident
from effectfence_pg.cli.rollback_storm_naive import NaiveFence
from effectfence_pg.cli.rollback_storm_plans import Action, How, Kind, Plan, Read, Step, make_plan
from effectfence_pg.cli.rollback_storm_sides import NaiveSide, play
from tests.support import warm
from tests.support.rows import all_of, one

DONE, NO, USAGE, DATABASE = 0, 1, 2, 3
COUNTED = {"invalid_commits", "partial_closures", "committed", "aborted", "refused"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        warm.python("effectfence_pg", "rollback-storm", *arguments),
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )


def invoke(database_url: str, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["rollback-storm", "--database-url", database_url, *arguments])


def test_the_naive_fence_commits_what_was_rolled_back_and_this_one_does_not(
    database_url: str, engine: sa.Engine
) -> None:
    done = run("--plans", "12", "--branches", "3..5", "--seed", "1", "--json", "--database-url", database_url)
    assert done.returncode == DONE, done.stderr
    facts = json.loads(done.stdout)
    name = sa.make_url(database_url).database
    [said] = done.stderr.splitlines()
    assert said.startswith(
        f"writing to namespaces {facts['namespace']} and {facts['namespace']}-incident of database {name} on "
    )
    assert (facts["plans"], facts["branches"], facts["seed"], facts["holds"]) == (12, "3..5", 1, True)
    assert facts["effects"] == facts["committed"] + facts["aborted"] + facts["refused"] > 0
    assert facts["elapsed_ms"] > 0
    naive, ours = facts["naive"], facts["closure_aware"]
    assert naive.keys() >= COUNTED
    assert ours.keys() >= COUNTED
    assert naive["invalid_commits"] >= 12
    assert (ours["invalid_commits"], ours["partial_closures"], ours["undecided"]) == (0, 0, 0)
    assert naive["incident"]["left"] == "version 2 on X = 0"
    assert ours["incident"]["left"] == "version 1 on X = 0"
    # Past everything that the command counts: what stands is certified, and what was undone is released.
    here = {"n": facts["namespace"]}
    states = dict(
        all_of(engine, "SELECT state, count(*) FROM effectfence.effects WHERE namespace = :n GROUP BY 1", **here)
    )
    assert states["committed"] == facts["committed"] + ours["compensated"]
    assert not states.keys() & {"in_flight", "executed"}
    assert (
        one(engine, "SELECT count(*) FROM effectfence.certificates WHERE namespace = :n", **here) == states["committed"]
    )


def test_people_see_the_incident_step_by_step(database_url: str) -> None:
    done = invoke(database_url, "--plans", "1", "--seed", "7")
    assert done.exit_code == DONE, done.output
    for words in (
        "A contradicts B, and B is rolled back",
        "deploy and write_config fall",
        "committed: its own fence is valid",
        "commits against what was rolled back",
        "seed 7",
    ):
        assert words in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [["--plans", "0"], ["--branches", "2..8"], ["--branches", "8..3"], ["--branches", "3-8"], ["--branches", "3..65"]],
    ids=str,
)
def test_wrong_usage_has_a_status_of_its_own(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["rollback-storm", *arguments]).exit_code == USAGE


def test_a_database_that_cannot_be_used_is_no_verdict(fresh_database: str) -> None:
    done = invoke(fresh_database, "--json")
    assert done.exit_code == DATABASE
    assert json.loads(done.stdout)["error"]["code"] == "schema_version_error"


class Silent(FencedSide):
    """Does not say what it observed: nobody can know then whose rollback it has to follow."""

    def begin(self, step: Step) -> None:
        if self.as_planned(step.reads):
            super().begin(dataclasses.replace(step, reads=()))


def test_a_fence_that_is_not_told_what_was_observed_is_found_out(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollback_storm, "FencedSide", Silent)
    done = invoke(database_url, "--plans", "3", "--seed", "1", "--json")
    assert done.exit_code == NO, done.output
    facts = json.loads(done.stdout)
    assert facts["closure_aware"]["invalid_commits"] >= 3
    assert facts["holds"] is False


class Idle(FencedSide):
    """Leaves without deciding."""

    def close(self, plan: Plan) -> None:
        pass


def test_what_nobody_decided_fails(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollback_storm, "FencedSide", Idle)
    done = invoke(database_url, "--plans", "30", "--seed", "1")
    assert done.exit_code == NO
    assert "NOT" in done.stdout


class Broken(NaiveSide):
    def finish(self, plan: Plan, step: Step) -> None:
        raise ZeroDivisionError(step.intent)


def test_an_error_that_is_no_answer_ends_the_storm() -> None:
    with pytest.raises(ZeroDivisionError):
        play(Broken(), [make_plan(1, number, 3, 8) for number in range(30)], lambda: None)


@pytest.mark.parametrize("seed", range(30))
def test_a_plan_is_made_of_its_seed_and_misleads_somebody(seed: int) -> None:
    plan = make_plan(seed, 3, 3, 8)
    assert plan == make_plan(seed, 3, 3, 8)
    assert plan != make_plan(seed + 1, 3, 3, 8)
    assert 3 <= len(plan.branches) <= 8
    assert 0 < len(plan.contradicted) < len(plan.branches)
    when = {(action.kind, action.name): at for at, stage in enumerate(plan.stages) for action in stage}
    begun = {n: at for (kind, n), at in when.items() if kind in {Kind.BEGIN, Kind.RUN}}
    ended = {n: at for (kind, n), at in when.items() if kind in {Kind.FINISH, Kind.RUN}}
    assert begun.keys() == ended.keys() == plan.steps.keys()
    misled = 0
    for intent, step in plan.steps.items():
        assert begun[intent] <= ended[intent]
        for read in step.reads:
            if read.writer is None:
                continue
            assert ended[read.writer] < begun[intent]
            writer = plan.steps[read.writer]
            assert writer.domain == read.domain
            rolled_back = when.get((Kind.ROLL_BACK, writer.branch or ""), 0)
            misled += (
                writer.branch in plan.contradicted and step.branch != writer.branch and rolled_back > begun[intent]
            )
    assert misled
    assert not any((Kind.DECIDE, branch) in when for branch in plan.contradicted)


def test_every_seed_makes_the_naive_fence_fail() -> None:
    for seed in range(20):
        side, plan = NaiveSide(), make_plan(seed, 0, 3, 8)
        play(side, [plan], lambda: None)
        assert judge([plan], ran=side.world.ran, certified=side.fence.committed()).invalid_commits
    assert not naive_incident().holds


def chain() -> Plan:
    """C rests on B, which rests on A; each is in a branch of its own, and D is of the same branch as C."""

    def step(intent: str, branch: str, *writers: str) -> Step:
        reads = tuple(Read(writer, writer, How.OBSERVES, late=False) for writer in writers)
        return Step(intent, branch, intent, reads, "hold", undoable=True)

    steps = [step("A", "a"), step("B", "b", "A"), step("C", "c", "B"), step("D", "c")]
    return Plan(("a", "b", "c"), {s.intent: s for s in steps}, frozenset("a"), ((Action(Kind.DECIDE, "b"),),))


@pytest.mark.parametrize(
    ("ran", "certified", "invalid", "partial"),
    [
        ("ABCD", "", 0, 0),
        ("", "", 0, 0),
        ("ABCD", "A", 1, 0),
        ("ABCD", "B", 1, 1),
        ("ABCD", "C", 1, 2),
        ("ABCD", "CD", 1, 1),
        ("ABCD", "D", 0, 1),
        ("ABD", "D", 0, 0),
        ("ABCD", "ABCD", 3, 0),
    ],
)
def test_the_judge_counts_what_should_not_stand(ran: str, certified: str, invalid: int, partial: int) -> None:
    found = judge([chain()], ran=set(ran), certified=set(certified))
    assert (found.invalid_commits, found.partial_closures) == (invalid, partial)
    assert found.committed == len(certified)
    assert found.aborted == len(ran) - len(certified)
    assert found.refused == 4 - len(ran)


def test_the_naive_fence_is_careful_about_a_single_effect() -> None:
    fence = NaiveFence()
    seen = fence.observe("stock")
    assert fence.prepare("one", "stock", branch=None, read_set={})
    assert not fence.prepare("one", "stock", branch=None, read_set={})
    assert not fence.prepare("two", "orders", branch=None, read_set=seen)
    assert not fence.commit("one")
    fence.hold("one")
    assert fence.commit("one")
    assert fence.commit("one")
    assert fence.prepare("three", "orders", branch="b", read_set=fence.observe("stock"))
    assert fence.prepare("four", "stock", branch=None, read_set={})
    fence.hold("three")
    assert not fence.commit("three")
    assert fence.prepare("five", "orders", branch="b", read_set={})
    assert not fence.observe_late("five", seen)
    assert fence.roll_back("b") == []
    assert fence.committed() == {"one"}


class Failing(FencedSide):
    """Dies with leases held."""

    def finish(self, plan: Plan, step: Step) -> None:
        raise ZeroDivisionError(step.intent)


@pytest.mark.parametrize("side", [FencedSide, Idle, Failing])
def test_nothing_is_left_unresolved_in_the_database_however_the_storm_ends(
    migrated_database: str, monkeypatch: pytest.MonkeyPatch, side: type[FencedSide]
) -> None:
    monkeypatch.setattr(rollback_storm, "FencedSide", side)
    done = invoke(migrated_database, "--plans", "5", "--seed", "1", "--json")
    assert isinstance(done.exception, ZeroDivisionError) == (side is Failing), done.output
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    assert one(engine, "SELECT count(*) FROM effectfence.effects") > 0
    assert all_of(engine, "SELECT intent FROM effectfence.unresolved") == []
    assert all_of(engine, "SELECT branch FROM effectfence.branches WHERE state = 'open'") == []


@pytest.mark.parametrize("command", ["storm", "rollback-storm"])
def test_help_says_that_the_database_is_written_to(command: str) -> None:
    said = " ".join(CliRunner().invoke(app, [command, "--help"]).stdout.split())
    assert "writes to the database" in said
