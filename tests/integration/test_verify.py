"""Whatever a superuser changes behind the fence's back is found and named; what is rewritten consistently, by an export."""

from __future__ import annotations

import importlib
import io
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from effectfence_pg.audit import ledger, verification
from effectfence_pg.audit.reading import Reader
from effectfence_pg.values.identity import fingerprint
from tests.support.servers import Databases, libpq_url
from tests.support.world import World

TABLES = ("branches", "certificates", "domains", "edges", "effects", "intents", "transitions")
KEY = "sha256(convert_to('{}', 'UTF8'))"


@pytest.fixture(scope="module")
def recorded(databases: Databases, template_database: str) -> Iterator[str]:
    """quote <- config <- plan <- charge, by a parent, a read set and an observation, and two that rest on nothing."""
    url = databases.create(template_database)
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    world = World(engine, "tenant")
    quote = world.commit("quote", agent="agent-q")
    world.commit("config", parent=quote.hash, agent="agent-c")
    plan = world.commit("plan", read_set=world.fence.observe("of:config", "of:quote"), agent="agent-p")
    world.commit("charge", parent=plan.hash, observes=("quote",))
    world.commit("leaf")
    world.commit("other", args={"cents": 1})
    world.commit("config again", domain="of:config")
    world.put("failed", "unknown")
    yield url
    engine.dispose()
    databases.drop(url)


@pytest.fixture
def mallory(recorded: str) -> Iterator[Reader]:
    """A superuser with every guard off, in a transaction that nobody else will ever see."""
    connection = Reader.connect(libpq_url(recorded), row_factory=psycopg.rows.dict_row)
    for table in TABLES:
        connection.execute(f"ALTER TABLE effectfence.{table} DISABLE TRIGGER ALL")
    connection.execute("ALTER TABLE effectfence.certificates DROP CONSTRAINT ck_certificates_hash")
    connection.execute("ALTER TABLE effectfence.certificates DROP CONSTRAINT fk_certificates_parent")
    yield connection
    connection.rollback()
    connection.close()


def found(connection: Reader, **more: Any) -> tuple[dict[str | None, set[str]], verification.Findings]:
    findings = verification.verify(connection, **more)
    return {facts["intent"]: set(facts["checks"]) for facts in findings.mismatches.values()}, findings


def update(table: str, assignment: str, intent: str) -> str:
    return f"UPDATE effectfence.{table} SET {assignment} WHERE intent_key = {KEY.format(intent)}"


MUTATIONS: dict[str, tuple[str, str | None, str]] = {
    "a body": (update("certificates", "body = convert_to(replace(convert_from(body, 'UTF8'), '4900', '4901'), 'UTF8')", "charge"), "charge", "hash"),
    "a body that says the same in other bytes": (update("certificates", "body = body || ' '", "charge"), "charge", "hash"),
    "a hash": (update("certificates", "hash = repeat('0', 64)", "leaf"), "leaf", "hash"),
    "a parent": (update("certificates", "parent = (SELECT hash FROM effectfence.certificates WHERE intent_key = sha256('quote'))", "charge"), "charge", "columns"),
    "a parent that is gone": (f"DELETE FROM effectfence.certificates WHERE intent_key = {KEY.format('plan')}", "charge", "parent"),
    "the result in its column": (update("effects", "result = '\"other\"'", "leaf"), "leaf", "columns"),
    "the args in their column": (update("effects", "args = '{}'", "other"), "other", "columns"),
    "the agent": (update("effects", "agent = 'mallory'", "charge"), "charge", "columns"),
    "the tool": (update("effects", "tool = 'refund'", "charge"), "charge", "columns"),
    "the intent's name": (update("intents", "intent = 'mine'", "leaf"), "leaf", "columns"),
    "the number": (update("effects", "seq = 7", "leaf"), "leaf", "columns"),
    "the domain's number, lowered": ("UPDATE effectfence.domains SET seq = 0 WHERE domain = 'of:leaf'", "leaf", "columns"),
    "the state": (update("effects", "state = 'failed'", "leaf"), "leaf", "columns"),
    "the attempt": (update("intents", "attempt = 2", "leaf"), "leaf", "columns"),
    "the clock in its column": (update("effects", "vector_clock = '{\"agent-a\":1}'", "charge"), "charge", "columns"),
    "the read set in its column": (update("effects", "read_set = '[]'", "plan"), "plan", "columns"),
    "the order of the read set": (update("effects", "read_keys = ARRAY[read_keys[2], read_keys[1]], read_seqs = ARRAY[read_seqs[2], read_seqs[1]]", "plan"), "plan", "edges"),
    "an edge of a read set, removed": (f"DELETE FROM effectfence.edges WHERE intent_key = {KEY.format('plan')} AND observed_key = {KEY.format('config')}", "plan", "edges"),
    "an edge to the parent, removed": (f"DELETE FROM effectfence.edges WHERE intent_key = {KEY.format('charge')} AND via = 'parent'", "charge", "parent"),
    "the only edge, removed": (f"DELETE FROM effectfence.edges WHERE intent_key = {KEY.format('config')}", "config", "edges"),
    "an edge, sent elsewhere": (f"UPDATE effectfence.edges SET observed_key = {KEY.format('leaf')} WHERE intent_key = {KEY.format('config')}", "config", "parent"),
    "an edge, added to what knew nothing": (f"INSERT INTO effectfence.edges VALUES ('tenant', {KEY.format('leaf')}, 1, {KEY.format('charge')}, 1, 'observes')", "leaf", "edges"),
    "an edge, added to what rests on something": (f"INSERT INTO effectfence.edges VALUES ('tenant', {KEY.format('config')}, 1, {KEY.format('charge')}, 1, 'observes')", "config", "clock"),
    "an edge of a read set, to what came after it": (f"INSERT INTO effectfence.edges VALUES ('tenant', {KEY.format('plan')}, 1, {KEY.format('config again')}, 1, 'read_set')", "plan", "edges"),
    "an edge to what never happened": (f"INSERT INTO effectfence.edges VALUES ('tenant', {KEY.format('charge')}, 1, {KEY.format('unknown')}, 1, 'observes')", "charge", "closure"),
    "an edge to what is not there": (f"INSERT INTO effectfence.edges VALUES ('tenant', {KEY.format('charge')}, 1, {KEY.format('nothing')}, 1, 'observes')", "charge", "edges"),
    "what says which action it is": (update("effects", "args_digest = sha256('x')", "leaf"), "leaf", "identity"),
    "what says which action it is, as declared": (update("effects", "identity_digest = sha256('x')", "leaf"), "leaf", "identity"),
    "which args were declared": (update("effects", "identity_fields = ARRAY['cents']", "leaf"), "leaf", "identity"),
    "the certificate's word for which action it is": (update("certificates", "args_digest = sha256('x')", "leaf"), "leaf", "columns"),
    "the same as declared": (update("certificates", "identity_digest = sha256('x')", "leaf"), "leaf", "columns"),
    "the same of which args were declared": (update("certificates", "identity_fields = ARRAY['cents']", "leaf"), "leaf", "columns"),
    "the order in time": (update("certificates", "minted_at = minted_at - interval '1 day'", "leaf"), "leaf", "record"),
    "the transition that minted it": (f"DELETE FROM effectfence.transitions WHERE intent_key = {KEY.format('leaf')} AND to_state = 'committed'", "leaf", "record"),
    "a mark that an operator overrode something": (update("certificates", "reconciled_over = '{\"operator\": \"o\", \"blockers\": []}'", "leaf"), "leaf", "record"),
    "the rows it was made from, removed": (f"DELETE FROM effectfence.effects WHERE intent_key = {KEY.format('leaf')}", None, "columns"),
}  # fmt: skip


def test_what_nobody_touched_holds(mallory: Reader) -> None:
    wrong, findings = found(mallory)
    assert (wrong, findings.missing, findings.certificates, findings.holds) == ({}, [], 7, True)


@pytest.mark.parametrize("kind", MUTATIONS)
def test_every_change_of_what_is_recorded_is_found_and_named(mallory: Reader, kind: str) -> None:
    statement, intent, check = MUTATIONS[kind]
    assert mallory.execute(statement).rowcount > 0
    wrong, findings = found(mallory)
    assert check in wrong[intent]
    assert not findings.holds


def test_certificates_that_changed_places_are_both_named(mallory: Reader) -> None:
    mallory.execute("ALTER TABLE effectfence.certificates DROP CONSTRAINT uq_certificates_intent")
    mallory.execute(
        "UPDATE effectfence.certificates c SET intent_key = CASE WHEN intent_key = sha256('leaf') THEN sha256('other') "
        "ELSE sha256('leaf') END WHERE intent_key IN (sha256('leaf'), sha256('other'))"
    )
    wrong, _ = found(mallory)
    assert {"leaf", "other"} <= set(wrong)


def test_a_removed_certificate_is_missing(mallory: Reader) -> None:
    mallory.execute("DELETE FROM effectfence.certificates WHERE intent_key = sha256('leaf')")
    _, findings = found(mallory)
    assert findings.missing == [{"namespace": "tenant", "intent": "leaf", "attempt": 1}]
    assert not findings.holds


def exported(connection: Reader) -> io.StringIO:
    file = io.StringIO(newline="\n")
    ledger.export(connection, file)
    file.seek(0)
    return file


def rehash(connection: Reader, intent: str) -> None:
    """Write a leaf anew in every place where it stands."""
    made = fingerprint(domain=f"of:{intent}", tool="charge", args={"cents": 1})
    connection.execute(
        "UPDATE effectfence.effects SET args = '{\"cents\":1}', args_digest = %s, identity_digest = %s WHERE intent = %s",
        [made.args_digest, made.identity_digest, intent],
    )
    connection.execute(
        "UPDATE effectfence.certificates c SET body = x.body, hash = encode(sha256(x.body), 'hex'), "
        "args_digest = x.args_digest, identity_digest = x.identity_digest FROM ("
        "SELECT intent_key, args_digest, identity_digest, effectfence.certificate_body(intent, parent, domain, seq, tool, "
        "args, result, vector_clock, read_set, agent) AS body FROM effectfence.effects WHERE intent = %s) AS x WHERE c.intent_key = x.intent_key",
        [intent],
    )


def test_a_leaf_that_was_rewritten_consistently_is_found_against_an_earlier_export(mallory: Reader) -> None:
    earlier = exported(mallory)
    rehash(mallory, "leaf")
    assert found(mallory)[0] == {}, "by itself it is consistent"
    wrong, findings = found(mallory, against=ledger.Earlier(earlier))
    assert wrong == {}
    assert findings.against is not None
    assert [row["intent"] for row in findings.against["missing"]] == ["leaf"]
    assert not findings.holds


def test_a_leaf_that_was_deleted_everywhere_is_found_against_an_earlier_export(mallory: Reader) -> None:
    earlier = exported(mallory)
    for table in ("certificates", "transitions", "effects", "intents"):
        mallory.execute(f"DELETE FROM effectfence.{table} WHERE intent_key = sha256('leaf')")
    assert found(mallory)[1].holds, "nothing that is left says that it was ever there"
    _, findings = found(mallory, against=ledger.Earlier(earlier))
    assert findings.against is not None
    assert (findings.against["certificates"], findings.against["missing_count"]) == (7, 1)
    assert findings.against["missing"][0]["intent"] == "leaf"
    assert not findings.holds


def test_an_observation_that_no_hash_covers_is_found_against_an_earlier_export(mallory: Reader) -> None:
    """One edge of several, by name: what is left still fits the certificate."""
    earlier = exported(mallory)
    mallory.execute("DELETE FROM effectfence.edges WHERE intent_key = sha256('charge') AND via = 'observes'")
    wrong, findings = found(mallory, against=ledger.Earlier(earlier))
    assert wrong == {}
    assert findings.against is not None
    assert [row["intent"] for row in findings.against["changed"]] == ["charge"]
    assert not findings.holds


def test_what_was_minted_since_an_export_is_no_mismatch(mallory: Reader) -> None:
    earlier = exported(mallory)
    kept = [line for line in earlier.read().splitlines() if '"intent":"leaf"' not in line]
    entries = [line for line in kept if '"ledger"' not in line]
    total = ledger._Counting()
    for line in entries:
        facts = ledger._parsed(line, 0)
        total.add(facts["namespace"], facts["hash"])
    text = "\n".join([*entries, f'{{"ledger": {{"certificates": 6, "digest": "{total.total().digest}"}}}}']) + "\n"
    assert found(mallory, against=ledger.Earlier(io.StringIO(text, newline="\n")))[1].holds


def test_the_digest_of_a_verification_is_that_of_an_export(mallory: Reader) -> None:
    total = ledger.export(mallory, io.StringIO())
    assert found(mallory)[1].digest == total.digest
    rehash(mallory, "leaf")
    assert found(mallory)[1].digest != total.digest


def test_python_and_sql_find_the_same_without_each_other(mallory: Reader) -> None:
    """Neither takes the other's word: a body and its column changed together still break the hash in both."""
    mallory.execute(
        "UPDATE effectfence.certificates SET body = convert_to(replace(convert_from(body, 'UTF8'), 'done', 'gone'), 'UTF8') "
        "WHERE intent_key = sha256('leaf')"
    )
    mallory.execute("UPDATE effectfence.effects SET result = '\"gone\"' WHERE intent = 'leaf'")
    row = mallory.execute("SELECT * FROM effectfence.certificate_ledger WHERE intent = 'leaf'").fetchone()
    assert verification.recomputed(row) == ["hash"]
    sql = mallory.execute("SELECT * FROM effectfence.certificate_audit WHERE intent = 'leaf'").fetchone()
    assert [name for name, holds in sql.items() if holds is False] == ["hash_holds"]


@pytest.mark.parametrize("bytes_", [b"", b"{}", b"[]", b"null", b"\\xff", b'{"intent":1}'])
def test_bytes_that_are_no_certificate_at_all_are_named_and_stop_nothing(mallory: Reader, bytes_: bytes) -> None:
    mallory.execute("UPDATE effectfence.certificates SET body = %s WHERE intent_key = sha256('leaf')", [bytes_])
    wrong, findings = found(mallory)
    assert {"hash", "canonical", "columns"} <= wrong["leaf"]
    assert findings.certificates == 7


def test_what_a_verification_holds_in_memory_does_not_grow_with_the_certificates(
    migrated_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    fill = importlib.import_module("benchmarks.audit").FILL
    with Reader.connect(libpq_url(migrated_database), row_factory=psycopg.rows.dict_row) as connection:
        peaks: list[int] = []
        for count in (2_500, 6_000):
            connection.execute(fill.format(ns=f"of-{count}", count=count, chain=1))
            tracemalloc.start()
            findings = verification.verify(connection, namespace=f"of-{count}")
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert (findings.holds, findings.certificates) == (True, count)
    assert peaks[1] < peaks[0] * 1.25
