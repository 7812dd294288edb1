"""An export verifies by itself, elsewhere, and comes back as what it was; a file that was touched is not taken."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from effectfence_pg import EffectCert, Replay
from effectfence_pg.audit import importing, ledger, verification
from effectfence_pg.audit.errors import LedgerBroken, LedgerConflict
from effectfence_pg.audit.reading import reading
from tests.support.rows import all_of, one
from tests.support.world import World


@pytest.fixture
def source(world: World) -> World:
    """A few certificates with everything that a certificate can have."""
    quote = world.commit(
        "quote", result={"é": ["\u2028", 1.5, -0.0, 2**70, None, "\u0000"]}, args={"note": "漢", "cents": 1}
    )
    world.commit("config", parent=quote.hash, read_set=world.fence.observe("of:quote"), agent="agent-c")
    world.commit("charge", observes=("quote", "config"), identity=["cents"], args={"cents": 4900, "note": "any"})
    ticket = world.admit("again")
    world.fence.abort(ticket, "no", effect="none")
    world.commit("again")
    return world


def text_of(world: World, **more: Any) -> str:
    file = io.StringIO(newline="\n")
    with reading(world.engine.url) as reader:
        ledger.export(reader, file, namespace=world.namespace, **more)
    return file.getvalue()


def read(text: str) -> list[ledger.Entry]:
    return list(ledger.entries(io.StringIO(text, newline="\n")))


def test_every_line_is_a_certificate_in_the_originals_form_that_verifies_without_a_database(source: World) -> None:
    lines = text_of(source).split("\n")[:-2]
    certificates = [EffectCert.model_validate(json.loads(line)) for line in lines]
    assert {certificate.intent for certificate in certificates} == {"quote", "config", "charge", "again"}
    assert all(certificate.verify() for certificate in certificates)
    assert [entry.hash for entry in read(text_of(source))] == sorted(certificate.hash for certificate in certificates)


@pytest.mark.parametrize(
    "touch",
    [
        lambda lines: lines[:-1],
        lambda lines: lines[1:],
        lambda lines: [lines[1], lines[0], *lines[2:]],
        lambda lines: [lines[0], *lines],
        lambda lines: [*lines, lines[0]],
        lambda lines: [lines[0].replace("charge", "refund"), *lines[1:]],
        lambda lines: [lines[0].replace('"seq":1', '"seq":2'), *lines[1:]],
        lambda lines: ["[]", *lines],
        lambda lines: ["{}", *lines],
        lambda lines: ["no json", *lines],
        lambda lines: [*lines[:-1], '{"ledger": {"certificates": "x"}}'],
        lambda lines: [],
    ],
)
def test_a_file_that_was_cut_or_edited_is_not_taken(source: World, touch: Any) -> None:
    lines = text_of(source).split("\n")[:-1]
    with pytest.raises(LedgerBroken) as refused:
        read("\n".join(touch(lines)) + "\n")
    assert refused.value.line >= 0


@pytest.fixture
def elsewhere(migrated_database: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    yield engine
    engine.dispose()


def bring_in(engine: sa.Engine, text: str) -> tuple[int, int]:
    with reading(engine.url, writes=True) as writer:
        return importing.bring_in(writer, io.StringIO(text, newline="\n"), operator="olga")


def test_an_import_stores_it_once_and_everything_verifies_and_replays_there(
    source: World, elsewhere: sa.Engine
) -> None:
    text = text_of(source)
    assert bring_in(elsewhere, text) == (4, 0)
    assert bring_in(elsewhere, text) == (0, 4)
    with reading(elsewhere.url) as reader:
        earlier = ledger.Earlier(io.StringIO(text, newline="\n"))
        findings = verification.verify(reader, against=earlier)
    assert (findings.facts()["mismatches"], findings.holds, findings.certificates) == ([], True, 4)
    there = World(elsewhere, source.namespace)
    replay = there.fence.prepare(there.request("charge", identity=["cents"], args={"cents": 4900, "note": "other"}))
    assert isinstance(replay, Replay)
    assert replay.certificate.hash == source.status("charge").certificate.hash
    assert there.edges("charge") == source.edges("charge")
    assert text_of(there) == text
    assert there.commit("next", domain="of:again").seq > source.effect("again")["seq"]
    assert all_of(elsewhere, "SELECT DISTINCT actor FROM effectfence.transitions WHERE cause = 'imported'") == ["olga"]


def test_an_import_that_does_not_fit_stores_nothing(source: World, elsewhere: sa.Engine) -> None:
    there = World(elsewhere, source.namespace)
    there.admit("charge", args={"cents": 1})
    with pytest.raises(LedgerConflict) as refused:
        bring_in(elsewhere, text_of(source))
    assert refused.value.intent == "charge"
    assert one(elsewhere, "SELECT count(*) FROM effectfence.certificates") == 0


def test_an_import_refuses_a_file_that_leaves_out_what_others_rest_on(source: World, elsewhere: sa.Engine) -> None:
    late = all_of(source.engine, "SELECT minted_at FROM effectfence.certificates WHERE parent IS NOT NULL "
                  "AND namespace = :namespace", namespace=source.namespace)[0]  # fmt: skip
    with pytest.raises(LedgerConflict, match="parent"):
        bring_in(elsewhere, text_of(source, since=late))
    assert one(elsewhere, "SELECT count(*) FROM effectfence.effects") == 0


def test_a_broken_file_stores_nothing(source: World, elsewhere: sa.Engine) -> None:
    cut = "\n".join(text_of(source).split("\n")[:2]) + "\n"
    with pytest.raises(LedgerBroken):
        bring_in(elsewhere, cut)
    assert one(elsewhere, "SELECT count(*) FROM effectfence.intents") == 0
