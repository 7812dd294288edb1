"""``intents`` and ``unresolved``: what is on record, page by page, and what nobody has decided."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from effectfence_pg.audit.reading import one, rows
from effectfence_pg.cli.options import (
    AnyNamespaceOption,
    LimitOption,
    NamespaceOption,
    age,
    reader_of,
    ready,
    table,
)
from effectfence_pg.cli.output import DatabaseUrlOption, JsonOption, answer, reporting
from effectfence_pg.errors import UnknownIntent
from effectfence_pg.protocol.states import State  # noqa: TC001 (read when the command is made)
from effectfence_pg.sql import audit
from effectfence_pg.values import MAX_SEQ, key_of

app = typer.Typer(help="What is on record of intents.", no_args_is_help=True)

_COLUMNS = {
    "intent": "intent",
    "attempt": "attempt",
    "state": "state",
    "domain": "domain",
    "seq": "seq",
    "tool": "tool",
    "agent": "agent",
    "admitted_at": "admitted (UTC)",
}


@app.command("list")
def list_intents(
    *,
    namespace: NamespaceOption = "default",
    state: Annotated[list[State] | None, typer.Option(help="Only these states; may be repeated.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only this agent's.")] = None,
    domain: Annotated[
        str | None, typer.Option(help="Only of this domain, all attempts, the newest number first.")
    ] = None,
    limit: LimitOption = 50,
    after: Annotated[str | None, typer.Option(help="Go on after this intent, the last one of the page before.")] = None,
    database_url: DatabaseUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List intents with their current attempt, in the order of their keys; with --domain, a domain's attempts."""
    parameters: dict[str, Any] = {
        "namespace": namespace,
        "states": [str(one_) for one_ in state] if state else None,
        "agent": agent,
        "limit": limit,
        "after": b"" if after is None else key_of(after),
        "domain_key": None if domain is None else key_of(domain),
        "before": MAX_SEQ + 1 if after is None or not (after.isascii() and after.isdigit()) else int(after),
    }
    with reporting(as_json), reader_of(database_url) as reader:
        query = audit.LIST_INTENTS if domain is None else audit.LIST_DOMAIN
        found = rows(reader, query, parameters, quiet=True)
        following = None
        if len(found) == limit:
            following = found[-1]["intent"] if domain is None else str(found[-1]["seq"])
        text = table(found, _COLUMNS)
        if following is not None:
            text += f"\n... go on with --after {following!r}"
        answer(as_json, {"intents": ready(found), "next": following}, text)


@app.command()
def show(
    intent: Annotated[str, typer.Argument(help="The intent.")],
    *,
    namespace: NamespaceOption = "default",
    database_url: DatabaseUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every attempt of an intent and every change on record, with cause, actor and evidence."""
    with reporting(as_json), reader_of(database_url) as reader:
        parameters = {"namespace": namespace, "intent_key": key_of(intent)}
        attempts = rows(reader, audit.ATTEMPTS, parameters, quiet=True)
        if not attempts:
            raise UnknownIntent(intent=intent)
        history = rows(reader, audit.HISTORY, parameters, quiet=True)
        facts = {"namespace": namespace, "intent": intent, "attempts": ready(attempts), "history": ready(history)}
        shown = ("attempt", "state", "domain", "seq", "tool", "agent", "started_at", "completed_at", "certificate")
        moves = ("attempt", "at", "from_state", "to_state", "cause", "actor", "reason", "evidence")
        parts = (
            f"{intent} in {namespace}",
            table(attempts, {name: name for name in shown}),
            table(history, {name: name for name in moves}),
        )
        answer(as_json, facts, "\n\n".join(parts))


def unresolved(
    *,
    namespace: AnyNamespaceOption = None,
    limit: LimitOption = 100,
    database_url: DatabaseUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what was dispatched and is not decided, the oldest first: who holds it, and what it blocks."""
    with reporting(as_json), reader_of(database_url, by_views=True) as reader:
        parameters = {"namespace": namespace, "limit": limit}
        found = rows(reader, audit.UNRESOLVED, parameters, quiet=True)
        count = one(reader, audit.UNRESOLVED_COUNT, parameters)["count"] if len(found) == limit else len(found)
        columns = {
            "namespace": "namespace",
            "intent": "intent",
            "attempt": "attempt",
            "state": "state",
            "age": "age",
            "holder": "holder",
            "last_renewal": "renewed (UTC)",
            "lease_live": "lease live",
            "reason": "reason",
            "blocks": "blocks",
        }
        shown = [{**row, "age": age(row["age_seconds"])} for row in found]
        text = table(shown, columns) if found else "nothing is unresolved"
        if count > len(found):
            text += f"\n... {len(found)} of {count}"
        answer(as_json, {"count": count, "unresolved": ready(found)}, text)
