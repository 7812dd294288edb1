"""OpenTelemetry: a span for each verb, counters, and what the database says of open work. Needs the extra ``otel``."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import Observation
    from opentelemetry.trace import SpanKind, Status, StatusCode
except ModuleNotFoundError as error:
    msg = "OpenTelemetry needs an extra: pip install 'effectfence-pg[otel]'"
    raise ModuleNotFoundError(msg, name=error.name) from error
from sqlalchemy import exc, text

from effectfence_pg import telemetry
from effectfence_pg.errors import FenceError
from effectfence_pg.protocol.states import SETTLED_FOR_GOOD, State
from effectfence_pg.sqlstates import first_line, translate

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from opentelemetry.metrics import CallbackOptions, MeterProvider
    from opentelemetry.trace import TracerProvider
    from sqlalchemy import Engine

    from effectfence_pg.telemetry import Event

SCOPE: Final = "effectfence_pg"

OPEN_WORK: Final = text("""
SELECT state, count(*) AS count,
       max(extract(epoch FROM clock_timestamp() - coalesce(last_renewal, admitted_at)))
         FILTER (WHERE lease_live) AS lease_age_seconds
FROM effectfence.unresolved WHERE CAST(:namespace AS text) IS NULL OR namespace = :namespace GROUP BY state""")
"""What is unresolved, by state, and how long the most silent holder of a live lease has not been heard of."""


UNDECIDED: Final = tuple(state for state in State if state not in SETTLED_FOR_GOOD)


class Instrumentation:
    """A listener that makes spans and counts. Attributes are verbs, outcomes and causes; names of intents on spans only.

    Args:
        tracer_provider: Where spans go; the global one when not given.
        meter_provider: Where counts go; the global one when not given.
    """

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._admissions = meter.create_counter(
            "effectfence.admissions", unit="{attempt}", description="Attempts that were admitted or replayed."
        )
        self._refusals = meter.create_counter(
            "effectfence.refusals", unit="{call}", description="Calls that were refused, by verb and cause."
        )
        self._retries = meter.create_counter(
            "effectfence.retries", unit="{transaction}", description="Transactions that were run again."
        )
        self._duration = meter.create_histogram(
            "effectfence.duration", unit="s", description="How long a verb took, waiting included."
        )

    def __call__(self, event: Event, /) -> None:
        """Count one event, and make its span."""
        verb = {"effectfence.verb": event.verb}
        if event.outcome in {"admitted", "replayed"}:
            self._admissions.add(1, {"effectfence.outcome": event.outcome})
        elif event.cause is not None:
            self._refusals.add(1, verb | {"effectfence.cause": event.cause})
        if event.retries:
            self._retries.add(event.retries, verb)
        self._duration.record(event.seconds, verb | {"effectfence.outcome": event.outcome})
        self._span(event)

    def _span(self, event: Event) -> None:
        attributes: dict[str, Any] = {
            f"effectfence.{name}": value for name, value in event.facts().items() if name != "seconds"
        }
        attributes["effectfence.outcome"] = event.outcome
        span = self._tracer.start_span(
            f"effectfence {event.verb}", kind=SpanKind.CLIENT, start_time=event.started_ns, attributes=attributes
        )
        # A refusal is an answer; only what kept the fence from answering is an error.
        if event.outcome == "error":
            span.set_status(Status(StatusCode.ERROR, event.cause))
        span.end(event.started_ns + round(event.seconds * 1e9))


@contextmanager
def instrumented(
    *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> Generator[None]:
    """Instrument every fence of this process until the `with` statement ends."""
    with telemetry.listening(Instrumentation(tracer_provider=tracer_provider, meter_provider=meter_provider)):
        yield


class _Reader:
    """What is open, or nothing while the database does not say: the first failure is a warning, and the next ones silent."""

    def __init__(self, engine: Engine, namespace: str | None) -> None:
        self._engine = engine
        self._namespace = namespace
        self._warned = False

    def read(self) -> list[Any] | None:
        try:
            with self._engine.connect() as connection:
                found = list(connection.execute(OPEN_WORK, {"namespace": self._namespace}))
        except exc.SQLAlchemyError as error:
            if not self._warned:
                self._warned = True
                known = translate(error)
                reason = f"{known}. {known.advice}" if isinstance(known, FenceError) else first_line(error)
                facts = {"namespace": self._namespace, "reason": reason}
                event = "effectfence.watch_failed"
                telemetry.LOGGER.warning("%s %s", event, reason, extra={"event": event, "facts": facts})
            return None
        self._warned = False
        return found


def watch(engine: Engine, *, namespace: str | None = None, meter_provider: MeterProvider | None = None) -> None:
    """Report open work whenever metrics are collected: one query, which asks for the rights of `effectfence_auditor`.

    Every undecided state is reported, with 0 where there is nothing. While the query fails nothing is: one warning says why.

    Args:
        engine: The database.
        namespace: The tenant; all of them when not given.
        meter_provider: Where it goes; the global one when not given.
    """
    reader = _Reader(engine, namespace)

    def unresolved(_options: CallbackOptions) -> Iterable[Observation]:
        found = reader.read()
        if found is None:
            return []
        # Of every state, also where there is nothing: an alert that was raised is cleared by a 0, not by silence.
        counts = dict.fromkeys(UNDECIDED, 0) | {row.state: row.count for row in found}
        return [Observation(count, {"effectfence.state": str(state)}) for state, count in counts.items()]

    def lease_age(_options: CallbackOptions) -> Iterable[Observation]:
        found = reader.read()
        if found is None:
            return []
        ages = [float(row.lease_age_seconds) for row in found if row.lease_age_seconds is not None]
        return [Observation(max(ages, default=0.0))]

    meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
    meter.create_observable_gauge(
        "effectfence.unresolved",
        callbacks=[unresolved],
        unit="{effect}",
        description="Effects that were dispatched and are not decided, by state.",
    )
    meter.create_observable_gauge(
        "effectfence.lease.age",
        callbacks=[lease_age],
        unit="s",
        description="How long the most silent holder of a live lease has not been heard of.",
    )
