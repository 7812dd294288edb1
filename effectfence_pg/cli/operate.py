"""``reconcile``, ``sweep``, ``settle`` and ``stats``: what operators decide, and the durable figures."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated, Any

import typer

from effectfence_pg.audit.reading import one, reading, rows
from effectfence_pg.calls import Calls
from effectfence_pg.cli.databases import usable_database
from effectfence_pg.cli.options import AnyNamespaceOption, NamespaceOption, reader_of
from effectfence_pg.cli.output import EXIT_NO, DatabaseUrlOption, JsonOption, answer, counted, progress, reporting
from effectfence_pg.errors import AttemptMismatch, InvalidRequest, NotReconcilable
from effectfence_pg.fence import Fence
from effectfence_pg.protocol.states import UNSETTLED
from effectfence_pg.sql import audit
from effectfence_pg.values import Basis, EffectStatus, FenceConfig, Outcome, key_of, read_json

_CONFIG = FenceConfig(pool_size=1, max_overflow=0, application_name="effectfence-operator")


def reconcile(
    intent: Annotated[str, typer.Argument(help="The intent.")],
    *,
    attempt: Annotated[
        int | None,
        typer.Option(min=1, help="The attempt that was judged; another current one is refused. Required."),
    ] = None,
    evidence: Annotated[str | None, typer.Option(help="How it is known: JSON, or plain words. Required.")] = None,
    operator: Annotated[str | None, typer.Option(help="Who says so. Default: who is logged in here.")] = None,
    happened: Annotated[str | None, typer.Option(metavar="JSON", help="It happened, and returned this.")] = None,
    over: Annotated[
        bool, typer.Option("--over", help="With --happened: although what it observed was rolled back.")
    ] = False,
    did_not_happen: Annotated[bool, typer.Option("--did-not-happen", help="Nothing happened.")] = False,
    basis: Annotated[str | None, typer.Option(help="With --did-not-happen: holder-dead or fenced-downstream.")] = None,
    compensated: Annotated[bool, typer.Option("--compensated", help="It happened and was undone.")] = False,
    namespace: NamespaceOption = "default",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    database_url: DatabaseUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Record what really happened to a fenced attempt. Shows what that unblocks, and asks on a terminal."""
    outcomes = {"happened": happened is not None, "did_not_happen": did_not_happen, "compensated": compensated}
    outcome = _one_outcome(outcomes, attempt, evidence)
    with reporting(as_json):
        judgement: dict[str, Any] = {
            "attempt": attempt,
            "outcome": outcome,
            "result": _json(happened, "happened") if happened is not None else None,
            "evidence": _loose_json(evidence or ""),
            "operator": operator or getpass.getuser(),
            "basis": _basis(basis, outcome),
            "over": over,
        }
        # All that can be refused without looking is refused before anybody is asked.
        Calls(namespace, _CONFIG).reconcile(intent, **judgement)
        with usable_database(database_url, make=False) as url, Fence(url, namespace=namespace, config=_CONFIG) as fence:
            status = fence.status(intent)
            _require_open(status, judgement)
            with reading(url) as reader:
                parameters = {"namespace": namespace, "intent_key": key_of(intent), "attempt": attempt}
                blocked = [row["intent"] for row in rows(reader, audit.BLOCKED, parameters, quiet=True)]
            progress.print(
                f"{intent} attempt {status.attempt} is {status.state} ({status.reason or 'no reason on record'}), held by "
                f"{status.agent}; {outcome.replace('_', ' ')} unblocks {_unblocked(intent, outcome, blocked)}",
                soft_wrap=True,
                markup=False,
            )
            if not yes and not as_json and on_a_terminal() and not typer.confirm("Record it?", err=True):
                raise typer.Exit(EXIT_NO)
            after = fence.reconcile(intent, **judgement)
        facts = {
            "namespace": namespace,
            "intent": intent,
            "attempt": after.attempt,
            "before": status.state,
            "state": after.state,
            "certificate": after.certificate.hash if after.certificate else None,
            "unblocks": blocked,
        }
        sealed = f", certificate {facts['certificate']}" if facts["certificate"] else ""
        answer(as_json, facts, f"{intent} attempt {after.attempt} is {after.state}{sealed}")


def _require_open(status: EffectStatus, judgement: dict[str, Any]) -> None:
    """Nobody is shown what a judgement unblocks, or asked, that the fence refuses whatever is answered.

    Raises:
        AttemptMismatch, NotReconcilable: As the verb does.
    """
    if status.attempt != judgement["attempt"]:
        raise AttemptMismatch(intent=status.intent, given=judgement["attempt"], current=status.attempt)
    if status.state not in UNSETTLED:
        raise NotReconcilable(
            intent=status.intent, attempt=status.attempt, state=status.state, outcome=judgement["outcome"]
        )


def _one_outcome(outcomes: dict[str, bool], attempt: int | None, evidence: str | None) -> str:
    """The outcome that was given. All that is missing is named at once."""
    chosen = [name for name, given in outcomes.items() if given]
    missing = [
        name
        for name, lacks in {
            "--attempt": attempt is None,
            "--evidence": evidence is None,
            "one of --happened, --did-not-happen, --compensated": not chosen,
        }.items()
        if lacks
    ]
    if missing:
        raise typer.BadParameter(f"missing: {'; '.join(missing)}")
    if len(chosen) > 1:
        raise typer.BadParameter("give exactly one of --happened, --did-not-happen and --compensated")
    return chosen[0]


def on_a_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()


def _unblocked(intent: str, outcome: str, blocked: list[str]) -> str:
    own = "a replay of its result" if outcome == "happened" else f"a new attempt of {intent}"
    return f"{own}, readers of its domain" + (f", and {', '.join(blocked)}" if blocked else "")


def _basis(given: str | None, outcome: str) -> str | None:
    """The basis, in the spelling of options or in the record's."""
    spelled = ", ".join(member.value.replace("_", "-") for member in Basis)
    if given is None:
        if outcome == Outcome.DID_NOT_HAPPEN:
            raise InvalidRequest(field="basis", reason=f"is required with --did-not-happen: one of {spelled}")
        return None
    name = given.replace("-", "_")
    if name not in {member.value for member in Basis}:
        raise InvalidRequest(field="basis", reason=f"is none of {spelled}")
    if outcome != Outcome.DID_NOT_HAPPEN:
        raise InvalidRequest(field="basis", reason="goes with --did-not-happen only")
    return name


def _json(text: str, field: str) -> Any:
    try:
        return read_json(text)
    except InvalidRequest as error:
        raise InvalidRequest(field=field, reason=f"is no JSON: {error.reason}") from error


def _loose_json(text: str) -> Any:
    """Evidence is JSON when it reads as JSON, and words otherwise."""
    try:
        return read_json(text)
    except InvalidRequest:
        return text


def sweep(
    *,
    namespace: NamespaceOption = "default",
    database_url: DatabaseUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fence every lease that ran out: its outcome is unknown until somebody reconciles it."""
    with (
        reporting(as_json),
        usable_database(database_url, make=False) as url,
        Fence(url, namespace=namespace, config=_CONFIG) as fence,
    ):
        fenced = fence.sweep()
        answer(as_json, {"namespace": namespace, "fenced": fenced}, f"{counted(fenced, 'expired lease')} fenced")


def settle(
    *,
    namespace: NamespaceOption = "default",
    database_url: DatabaseUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Do what callers may no longer be alive to do: commit, abort and fence what is decided by now."""
    with (
        reporting(as_json),
        usable_database(database_url, make=False) as url,
        Fence(url, namespace=namespace, config=_CONFIG) as fence,
    ):
        done = fence.settle()
        facts = {"namespace": namespace, **done.model_dump()}
        answer(as_json, facts, ", ".join(f"{name} {value}" for name, value in facts.items()))


def stats(
    *,
    namespace: AnyNamespaceOption = None,
    database_url: DatabaseUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count what is on record: intents, attempts by state, and changes by cause."""
    with reporting(as_json), reader_of(database_url) as reader:
        parameters = {"namespace": namespace}
        totals = one(reader, audit.TOTALS, parameters)
        states = {row["state"]: row["count"] for row in rows(reader, audit.STATES, parameters)}
        causes = {row["cause"]: row["count"] for row in rows(reader, audit.CAUSES, parameters)}
        facts = {**totals, "attempts": sum(states.values()), "states": states, "causes": causes}
        lines = [f"{name:<14} {facts[name]:>12,}" for name in ("intents", "attempts", "certificates", "domains")]
        lines += ["", *(f"  {name:<28} {count:>12,}" for name, count in states.items())]
        lines += ["", *(f"  {name:<28} {count:>12,}" for name, count in causes.items())]
        answer(as_json, facts, "\n".join(lines))
