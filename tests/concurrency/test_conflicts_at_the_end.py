"""A conflict that the server sees when the transaction ends: the row has come by then, and it does not count."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from effectfence_pg import EffectRequest, Fence, FenceConfig, Fresh

CONFLICTS = 3

NOT_NOW = ["serialization_failure", "deadlock_detected", "out_of_memory"]
"""The last is what the server says when its table of predicate locks is full."""

FAIL_AT_THE_END = (
    "CREATE SEQUENCE tries",
    f"""CREATE FUNCTION fail_at_the_end() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      -- A sequence keeps counting when a transaction is rolled back.
      IF nextval('tries') <= {CONFLICTS} THEN
        RAISE EXCEPTION 'not now' USING ERRCODE = '{{condition}}';
      END IF;
      RETURN NULL;
    END $$""",
    """CREATE CONSTRAINT TRIGGER fail_at_the_end AFTER INSERT ON effectfence.effects
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail_at_the_end()""",
)


@pytest.mark.parametrize("condition", NOT_NOW)
@pytest.mark.parametrize("own_engine", [True, False], ids=["own engine", "given engine"])
@pytest.mark.parametrize(
    "prepare_threshold", [None, 0, 1], ids=["never prepared", "prepared at once", "prepared later"]
)
def test_a_conflict_at_commit_is_retried_and_leaves_nothing_behind(
    prepare_threshold: int | None, own_engine: bool, condition: str, migrated_database: str
) -> None:
    engine = sa.create_engine(migrated_database, connect_args={"prepare_threshold": prepare_threshold})
    with engine.begin() as connection:
        for statement in FAIL_AT_THE_END:
            connection.execute(sa.text(statement.replace("{condition}", condition)))
    config = FenceConfig(prepare_threshold=prepare_threshold, pool_size=1, max_overflow=0)
    with Fence(migrated_database if own_engine else engine, config=config) as fence:
        request = EffectRequest(intent="charge", domain="orders", tool="t", agent="a")
        verdict = fence.prepare(request)
        assert isinstance(verdict, Fresh)
        assert fence.retries == CONFLICTS
        assert verdict.prepared.seq == 1
        # The connection is as good as before.
        assert fence.commit(verdict.prepared, {"ok": True}).verify()
        assert fence.current("orders") == 1
    engine.dispose()
