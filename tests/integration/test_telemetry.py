"""What is told of every call: stable names, causes and retries; never what was asked or answered."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
import sqlalchemy as sa
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from effectfence_pg import (
    AsyncFence,
    DatabaseUnavailable,
    Fence,
    FenceConfig,
    IntentInFlight,
    IntentMismatch,
    telemetry,
)
from effectfence_pg.telemetry.otel import instrumented, watch
from tests.support.roles import url_as
from tests.support.rows import change
from tests.support.world import World

SECRET = "4242-4242-4242-4242"


def act(world: World) -> None:
    """An admission, a commit, a replay and two refusals, all about something nobody should read."""
    ticket = world.admit(args={"card": SECRET})
    with pytest.raises(IntentInFlight):
        world.admit(args={"card": SECRET})
    world.fence.commit(ticket, {"echo": SECRET})
    world.fence.prepare(world.request(args={"card": SECRET}))
    with pytest.raises(IntentMismatch):
        world.admit(args={"card": f"{SECRET}-other"})


def test_every_call_is_one_event_with_its_outcome_cause_and_subject(world: World) -> None:
    events: list[telemetry.Event] = []
    with telemetry.listening(events.append):
        act(world)
    world.fence.status("charge:1")
    assert [(event.name, event.verb, event.cause) for event in events] == [
        ("effectfence.admitted", "prepare", None),
        ("effectfence.refused", "prepare", "intent_in_flight"),
        ("effectfence.committed", "commit", None),
        ("effectfence.replayed", "prepare", None),
        ("effectfence.refused", "prepare", "intent_mismatch"),
    ]
    assert {(event.namespace, event.intent, event.attempt) for event in events} == {(world.namespace, "charge:1", 1)}
    assert all(event.seconds > 0 and event.retries == 0 for event in events)


def test_events_are_logged_under_stable_names_without_a_payload(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="effectfence_pg"):
        act(world)
    assert [record.event for record in caplog.records] == [
        "effectfence.admitted",
        "effectfence.refused",
        "effectfence.committed",
        "effectfence.replayed",
        "effectfence.refused",
    ]
    assert caplog.records[1].facts["cause"] == "intent_in_flight"
    assert SECRET not in caplog.text
    assert SECRET not in str([vars(record) for record in caplog.records])


def test_awaited_calls_are_told_in_the_same_words(world: World) -> None:
    events: list[telemetry.Event] = []

    async def call() -> None:
        async with AsyncFence(world.engine.url, namespace=world.namespace) as fence:
            admission = await fence.prepare(world.request())
            with pytest.raises(IntentInFlight):
                await fence.prepare(world.request())
            await fence.commit(admission.prepared, SECRET)

    with telemetry.listening(events.append):
        asyncio.run(call())
    assert [(event.name, event.cause) for event in events] == [
        ("effectfence.admitted", None),
        ("effectfence.refused", "intent_in_flight"),
        ("effectfence.committed", None),
    ]


def test_nobody_listens_and_nothing_is_wrapped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def unexpected(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(telemetry, "told", unexpected)
    act(world)


def test_the_fences_loggers_carry_the_fences_events_and_nobody_elses(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="effectfence_pg")
    caplog.set_level(logging.DEBUG, logger="sqlalchemy.pool")
    with Fence(world.engine.url, namespace=world.namespace) as fence:
        fence.run(world.request(), lambda: "done")
        with fence.engine.connect():
            pass
    ours = [record for record in caplog.records if record.name.startswith("effectfence_pg")]
    assert ours
    assert all(hasattr(record, "facts") for record in ours), ours
    assert any(record.name.startswith("sqlalchemy.pool.LeanPool") for record in caplog.records)


def test_a_listener_that_fails_fails_alone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_event: telemetry.Event) -> None:
        raise ZeroDivisionError

    heard: list[telemetry.Event] = []
    with telemetry.listening(broken), telemetry.listening(heard.append), caplog.at_level(logging.ERROR):
        certificate = world.commit()
    assert certificate.verify()
    assert len(heard) == 2
    assert [record.message for record in caplog.records] == ["effectfence.listener_failed"] * 2


def test_a_transaction_that_is_run_again_is_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    events: list[telemetry.Event] = []
    execute, failures = world.fence._execute, [psycopg.errors.SerializationFailure(), psycopg.errors.DeadlockDetected()]

    def losing(operation: Any) -> Any:
        if failures:
            raise failures.pop()
        return execute(operation)

    monkeypatch.setattr(world.fence, "_execute", losing)
    with telemetry.listening(events.append):
        world.admit()
    assert [(event.outcome, event.retries) for event in events] == [("admitted", 2)]


def test_an_error_of_the_database_is_told_too(databases: Any, template_database: str) -> None:
    url = databases.create(template_database)
    world = World(sa.create_engine(url, poolclass=sa.NullPool), "tenant", FenceConfig(retry_deadline_seconds=0.1))
    world.commit("before")
    databases.drop(url)
    events: list[telemetry.Event] = []
    with telemetry.listening(events.append), pytest.raises(DatabaseUnavailable):
        world.admit()
    assert [(event.name, event.cause) for event in events] == [("effectfence.refused", "database_unavailable")]


def metrics_of(reader: InMemoryMetricReader) -> dict[str, dict[tuple[tuple[str, Any], ...], float]]:
    """Every data point by name and attributes: its value, or its count."""
    data = reader.get_metrics_data()
    points: dict[str, dict[tuple[tuple[str, Any], ...], float]] = {}
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points[metric.name] = {
                    tuple(sorted(point.attributes.items())): getattr(point, "value", None)
                    if hasattr(point, "value")
                    else point.count
                    for point in metric.data.data_points
                }
    return points


def test_spans_and_metrics_say_the_same(world: World) -> None:
    reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
    meters, tracers = MeterProvider([reader]), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    with instrumented(tracer_provider=tracers, meter_provider=meters):
        act(world)
    points = metrics_of(reader)
    assert points["effectfence.admissions"] == {
        (("effectfence.outcome", "admitted"),): 1,
        (("effectfence.outcome", "replayed"),): 1,
    }
    assert points["effectfence.refusals"] == {
        (("effectfence.cause", "intent_in_flight"), ("effectfence.verb", "prepare")): 1,
        (("effectfence.cause", "intent_mismatch"), ("effectfence.verb", "prepare")): 1,
    }
    assert sum(points["effectfence.duration"].values()) == 5
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == [
        f"effectfence {verb}" for verb in ("prepare", "prepare", "commit", "prepare", "prepare")
    ]
    assert all(span.end_time > span.start_time for span in spans)
    assert {span.status.status_code for span in spans} == {StatusCode.UNSET}
    assert spans[0].attributes["effectfence.intent"] == "charge:1"
    assert SECRET not in str([dict(span.attributes) for span in spans])
    tracers.shutdown()
    meters.shutdown()


def test_open_work_is_read_when_metrics_are_collected(world: World) -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    watch(world.engine, namespace=world.namespace, meter_provider=meters)
    assert metrics_of(reader)["effectfence.lease.age"] == {(): 0.0}
    for state in ("failed", "in_flight", "executed", "committed"):
        world.put(state, state)
    world.put("failed", "failed too")
    points = metrics_of(reader)
    assert points["effectfence.unresolved"] == {
        (("effectfence.state", "aborted"),): 0,
        (("effectfence.state", "executed"),): 1,
        (("effectfence.state", "failed"),): 2,
        (("effectfence.state", "in_flight"),): 1,
    }
    assert 0 < points["effectfence.lease.age"][()] < 60
    meters.shutdown()


def test_what_is_decided_is_reported_as_none_so_that_an_alert_clears(world: World) -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    watch(world.engine, namespace=world.namespace, meter_provider=meters)
    failed = (("effectfence.state", "failed"),)
    undecided = {"in_flight", "executed", "failed", "aborted"}
    none = {(("effectfence.state", state),): 0 for state in undecided}
    assert metrics_of(reader)["effectfence.unresolved"] == none
    world.put("failed")
    assert metrics_of(reader)["effectfence.unresolved"] == none | {failed: 1}
    world.fence.clear("charge:1", attempt=1, basis="holder_dead", evidence=1, operator="o")
    assert metrics_of(reader)["effectfence.unresolved"] == none
    meters.shutdown()


def test_open_work_that_may_not_be_read_is_one_warning_and_not_a_number(
    migrated_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = sa.create_engine(migrated_database, poolclass=sa.NullPool)
    app = sa.create_engine(url_as(engine, "effectfence_app"), poolclass=sa.NullPool)
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    watch(app, meter_provider=meters)
    for _ in range(3):
        assert "effectfence.unresolved" not in metrics_of(reader)
    [record] = caplog.records
    assert (record.levelno, record.event, record.exc_info) == (logging.WARNING, "effectfence.watch_failed", None)
    assert "permission denied" in record.facts["reason"]
    assert "effectfence_auditor" in record.getMessage()
    change(engine, "GRANT SELECT ON effectfence.unresolved TO effectfence_app")
    assert len(metrics_of(reader)["effectfence.unresolved"]) == 4
    change(engine, "REVOKE SELECT ON effectfence.unresolved FROM effectfence_app")
    assert "effectfence.unresolved" not in metrics_of(reader)
    assert len(caplog.records) == 2, "it failed anew after it had worked"
    meters.shutdown()
