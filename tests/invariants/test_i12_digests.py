"""I12: the same inputs give the same digests in every process, and in SQL."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from effectfence_pg import VectorClock, certificate_body
from effectfence_pg.values import key_of
from effectfence_pg.values.canonical import canonical_json, read_json
from tests.support.rows import all_of
from tests.support.world import World

VECTORS = Path(__file__).parents[1] / "vectors"
ODD = [
    "plain",
    "é",
    "e\u0301",
    "\x01\x1f\x7f\b\f\n\r\t",
    '"\\/',
    "\u2028\u2029\ufeff",
    "😀\ud7ff\ue000",
    "zß",
    "\uff21",
]
"""Names that break a serializer that is only nearly right. No U+0000: a name has none."""

BODY = sa.text(
    "SELECT effectfence.certificate_body(:intent, :parent, :domain, :seq, :tool, :args, :result, :vector_clock, "
    ":read_set, :agent)"
).bindparams(
    *(
        sa.bindparam(name, type_=sa.Text)
        for name in ("intent", "parent", "domain", "tool", "args", "result", "vector_clock", "read_set", "agent")
    ),
    sa.bindparam("seq", type_=sa.BigInteger),
)


def in_sql(connection: sa.Connection, **facts: Any) -> bytes:
    """The body as SQL makes it, from the texts that are stored beside it."""
    for name in ("args", "result", "vector_clock", "read_set"):
        facts[name] = canonical_json(facts[name])
    return bytes(connection.execute(BODY, facts).scalar_one())


def test_sql_makes_the_bytes_of_every_certificate_of_the_original(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        for line in (VECTORS / "certificates.jsonl").read_text().splitlines():
            vector = json.loads(line)
            facts = dict(vector["input"])
            args, result = read_json(facts.pop("args_json")), read_json(facts.pop("result_json"))
            if "\0" in "".join(facts[name] for name in ("intent", "domain", "tool", "agent")):
                continue
            body = in_sql(connection, **facts, args=args, result=result)
            assert body == vector["preimage"].encode(), vector["id"]
            assert hashlib.sha256(body).hexdigest() == vector["hash"]


def test_sql_and_python_make_the_same_bytes_of_odd_names_and_values(engine: sa.Engine) -> None:
    values: list[Any] = [
        None,
        True,
        0,
        -1,
        2**63,
        10**400,
        1.0,
        1e16,
        1e-7,
        -0.0,
        5e-324,
        "",
        [],
        {},
        ODD,
        {name: name for name in ODD},
    ]
    with engine.connect() as connection:
        for name in ODD:
            for value in values:
                facts = {
                    "intent": name,
                    "parent": None,
                    "domain": name,
                    "seq": 2**63 - 1,
                    "tool": name,
                    "args": value,
                    "result": {"was": value},
                    "vector_clock": {name: 2**64 - 1},
                    "read_set": [{"domain": name, "seq": 0}],
                    "agent": name,
                }
                assert in_sql(connection, **facts) == certificate_body(**facts)


@pytest.mark.parametrize("rests", [False, True], ids=["plain", "resting"])
def test_what_is_stored_is_what_python_computes(world: World, rests: bool) -> None:
    """Keys, clocks, digests, bodies and hashes of real effects, recomputed on both sides."""
    for n, name in enumerate(ODD):
        more = {"read_set": world.fence.observe(*ODD[:n])} if rests else {}
        prepared = world.admit(
            f"{name}:{n}",
            domain=name,
            tool=name,
            agent=name,
            args={name: [name, n]},
            known_clock=dict.fromkeys(ODD, 1),
            **more,
        )
        certificate = world.fence.commit(prepared, {name: 1.5})
        row = world.effect(f"{name}:{n}")
        assert (row["intent_key"], row["domain_key"]) == (key_of(f"{name}:{n}"), key_of(name))
        assert row["args_digest"] == prepared.args_digest
        assert row["vector_clock"] == canonical_json(dict(prepared.vector_clock.root))
        assert hashlib.sha256(row["vector_clock"].encode()).hexdigest() == prepared.vector_clock.digest()
        assert certificate.body() == prepared.certificate_body(canonical_json({name: 1.5}))
        assert certificate.verify()
    assert all_of(
        world.engine,
        """
        SELECT DISTINCT e.intent_key = sha256(convert_to(e.intent, 'UTF8'))
          AND e.domain_key = sha256(convert_to(e.domain, 'UTF8'))
          AND e.args_digest = sha256(convert_to('{"args":' || e.args || ',"domain":' || to_json(e.domain)::text
                                                || ',"tool":' || to_json(e.tool)::text || '}', 'UTF8'))
          AND c.hash = encode(sha256(c.body), 'hex')
          AND c.body = effectfence.certificate_body(e.intent, e.parent, e.domain, e.seq, e.tool, e.args, e.result,
                                                    e.vector_clock, e.read_set, e.agent)
          AND a.hash_holds AND a.columns_hold AND a.parent_holds AND a.edges_hold AND a.clock_holds
        FROM effectfence.effects e
        JOIN effectfence.certificates c USING (namespace, intent_key, attempt)
        JOIN effectfence.certificate_audit a ON a.namespace = c.namespace AND a.hash = c.hash
        WHERE e.namespace = :n""",
        n=world.namespace,
    ) == [True]


def test_clocks_joined_in_sql_have_the_digest_of_clocks_joined_in_python(world: World) -> None:
    clock = VectorClock()
    for n, name in enumerate(ODD):
        ticket = world.admit(f"base:{n}", agent=name, known_clock={f"{name}{m}": m for m in range(3)})
        world.fence.commit(ticket, "done")
        clock = clock.merge(ticket.vector_clock)
    joined = world.admit(agent="é", observes=[f"base:{n}" for n in range(len(ODD))]).vector_clock
    expected = clock.tick("é")
    assert joined == expected
    assert joined.digest() == expected.digest()
    assert world.effect()["vector_clock"] == canonical_json(dict(expected.root))


def test_clock_digests_of_the_original_are_those_of_sql(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        for line in (VECTORS / "vector_clocks.jsonl").read_text().splitlines():
            vector = json.loads(line)
            text = canonical_json(dict(vector["clock"]))
            digest = connection.execute(
                sa.text("SELECT encode(sha256(convert_to(:clock, 'UTF8')), 'hex')"), {"clock": text}
            ).scalar_one()
            assert digest == vector["digest"] == VectorClock(vector["clock"]).digest()
