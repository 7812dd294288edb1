"""Every verb is one turn, and what changes nothing writes nothing. Turns are counted by a proxy, not timed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from effectfence_pg import (
    DomainRace,
    Fence,
    FenceConfig,
    FenceError,
    FenceRepository,
    IntentFailed,
    IntentInFlight,
    IntentMismatch,
    ReadSetStale,
    ReadSetUnsettled,
    UnknownParent,
)
from effectfence_pg.embedded import private_server
from effectfence_pg.migrate import upgrade
from tests.support import wal
from tests.support.proxy import Proxy
from tests.support.rows import rows
from tests.support.servers import Databases
from tests.support.world import World

Verbs = Fence | FenceRepository
Case = Callable[[World, str], Callable[[Verbs], Any]]


def refused(kind: type[FenceError], call: Callable[[Verbs], Any]) -> Callable[[Verbs], Any]:
    def refusing(verbs: Verbs) -> None:
        with pytest.raises(kind) as caught:
            call(verbs)
        assert type(caught.value) is kind

    return refusing


def prepare(world: World, intent: str, **more: Any) -> Callable[[Verbs], Any]:
    return lambda verbs: verbs.prepare(world.request(intent, **more))


def fresh(world: World, name: str) -> Callable[[Verbs], Any]:
    return prepare(world, name)


def fresh_that_rests_on_something(world: World, name: str) -> Callable[[Verbs], Any]:
    certificate = world.commit(f"{name}-read", domain=f"{name}-domain")
    return prepare(
        world,
        name,
        parent=certificate.hash,
        read_set=world.fence.observe(f"{name}-domain"),
        observes=[f"{name}-read"],
        expected_seq=0,
    )


def commit(world: World, name: str) -> Callable[[Verbs], Any]:
    prepared = world.admit(name)
    return lambda verbs: verbs.commit(prepared, "done")


def commit_that_rests_on_something(world: World, name: str) -> Callable[[Verbs], Any]:
    world.commit(f"{name}-read", domain=f"{name}-domain")
    prepared = world.admit(name, read_set=world.fence.observe(f"{name}-domain"))
    return lambda verbs: verbs.commit(prepared, "done")


def replay(world: World, name: str) -> Callable[[Verbs], Any]:
    world.commit(name)
    return prepare(world, name)


def in_flight(world: World, name: str) -> Callable[[Verbs], Any]:
    world.admit(name)
    return refused(IntentInFlight, prepare(world, name))


def mismatch(world: World, name: str) -> Callable[[Verbs], Any]:
    world.admit(name)
    return refused(IntentMismatch, prepare(world, name, args="others"))


def failed(world: World, name: str) -> Callable[[Verbs], Any]:
    world.put("failed", name)
    return refused(IntentFailed, prepare(world, name))


def stale(world: World, name: str) -> Callable[[Verbs], Any]:
    world.commit(f"{name}-read", domain=f"{name}-domain")
    return refused(ReadSetStale, prepare(world, name, read_set=[{"domain": f"{name}-domain", "seq": 0}]))


def unsettled(world: World, name: str) -> Callable[[Verbs], Any]:
    world.admit(f"{name}-read", domain=f"{name}-domain")
    return refused(ReadSetUnsettled, prepare(world, name, read_set=[{"domain": f"{name}-domain", "seq": 1}]))


def race(world: World, name: str) -> Callable[[Verbs], Any]:
    world.commit(f"{name}-read", domain=f"of:{name}")
    return refused(DomainRace, prepare(world, name, expected_seq=0))


def unknown_parent(world: World, name: str) -> Callable[[Verbs], Any]:
    return refused(UnknownParent, prepare(world, name, parent="0" * 64))


def renew(world: World, name: str) -> Callable[[Verbs], Any]:
    prepared = world.admit(name)
    return lambda verbs: verbs.renew(prepared)


def abort(world: World, name: str) -> Callable[[Verbs], Any]:
    prepared = world.admit(name)
    return lambda verbs: verbs.abort(prepared, "it went wrong")


def abort_without_effect(world: World, name: str) -> Callable[[Verbs], Any]:
    prepared = world.admit(name)
    return lambda verbs: verbs.abort(prepared, "never sent", effect="none")


def observe(world: World, name: str) -> Callable[[Verbs], Any]:
    return lambda verbs: verbs.observe(name, "elsewhere")


def current(world: World, name: str) -> Callable[[Verbs], Any]:
    return lambda verbs: verbs.current(name)


def reserve(world: World, name: str) -> Callable[[Verbs], Any]:
    return lambda verbs: verbs.reserve(name, 0)


def status(world: World, name: str) -> Callable[[Verbs], Any]:
    world.commit(name)
    return lambda verbs: verbs.status(name)


CASES: tuple[Case, ...] = (
    *(
        fresh,
        fresh_that_rests_on_something,
        commit,
        commit_that_rests_on_something,
        replay,
        in_flight,
        mismatch,
        failed,
    ),
    *(stale, unsettled, race, unknown_parent, renew, abort, abort_without_effect, observe, current, reserve, status),
)
each_threshold = pytest.mark.parametrize(
    ("threshold", "calls"),
    # So many calls of each verb that a statement has been prepared on the server, used, and used again.
    [(None, 2), (0, 3), (2, 5)],
    ids=["never prepared", "prepared", "prepared later"],
)


@pytest.fixture(scope="module")
def proxy(database_url: str) -> Iterator[Proxy]:
    with Proxy(database_url) as proxy:
        yield proxy
        assert proxy.failures == []


def through(proxy: Proxy, namespace: str, threshold: int | None) -> Fence:
    """A fence behind the proxy, past its one check of the schema."""
    fence = Fence(proxy.url, namespace=namespace, config=FenceConfig(prepare_threshold=threshold, pool_size=1))
    fence.current("nothing")
    return fence


@each_threshold
def test_every_verb_takes_one_turn(threshold: int | None, calls: int, proxy: Proxy, world: World) -> None:
    taken: dict[str, list[int]] = {}
    with through(proxy, world.namespace, threshold) as fence:
        for case in CASES:
            for number in range(calls):
                call = case(world, f"{case.__name__}-{number}")
                with proxy.counted() as turns:
                    call(fence)
                taken.setdefault(case.__name__, []).extend(turns)
    assert taken == {case.__name__: [1] * calls for case in CASES}


@each_threshold
@pytest.mark.parametrize("case", [replay, in_flight, mismatch, failed], ids=lambda case: case.__name__)
def test_an_intent_that_this_fence_has_seen_takes_one_turn_as_well(
    case: Case, threshold: int | None, calls: int, proxy: Proxy, world: World
) -> None:
    call = case(world, "charge:1")
    with through(proxy, world.namespace, threshold) as fence:
        for _ in range(calls):
            with proxy.counted() as turns:
                call(fence)
            assert turns == [1]


@pytest.mark.parametrize("threshold", [None, 0], ids=["never prepared", "prepared"])
def test_every_verb_takes_one_turn_of_the_callers_transaction(
    threshold: int | None, proxy: Proxy, world: World
) -> None:
    connect = {"prepare_threshold": threshold}
    engine = sa.create_engine(proxy.url, isolation_level="SERIALIZABLE", pool_size=1, connect_args=connect)
    taken: dict[str, list[int]] = {}
    for case in CASES:
        calls = [case(world, f"{case.__name__}-{number}") for number in range(3)]
        with engine.begin() as connection:
            # BEGIN is the caller's, and so is the turn in which their driver prepares a statement.
            calls[0](FenceRepository(connection, namespace=world.namespace))
            for call in calls[1:]:
                with proxy.counted() as turns:
                    call(FenceRepository(connection, namespace=world.namespace))
                taken.setdefault(case.__name__, []).extend(turns)
    engine.dispose()
    assert taken == {case.__name__: [1, 1] for case in CASES}


@pytest.fixture(scope="module")
def quiet(databases: Databases, database_url: str) -> Iterator[sa.Engine]:
    """A database on a server where nothing happens but what a test does."""
    with contextlib.ExitStack() as exits:
        url = database_url
        if databases.log is None:  # not a server of this run alone
            url = exits.enter_context(private_server(temporary=True)).url
            upgrade(url)
        engine = sa.create_engine(url)
        exits.callback(engine.dispose)
        exits.callback(wal.unsilence, engine)
        yield engine


@pytest.mark.parametrize("seen", [False, True], ids=["by a new fence", "by a fence that has seen it"])
def test_replays_and_refusals_write_nothing(quiet: sa.Engine, namespace: str, seen: bool) -> None:
    own = Fence(quiet, namespace=namespace)
    wal.put(own)
    asked = wal.cases(namespace)
    named = {name: wal.ask(own, request) for name, request in asked.items()}
    assert named == wal.ANSWERS
    times = {name: 100 if name == "replay" else -(-100 // (len(asked) - 1)) for name in asked}
    wal.silence(quiet)
    before = rows(quiet, namespace)
    with wal.used(quiet) as found:
        for name, request in asked.items():
            for _ in range(times[name]):
                assert wal.ask(own if seen else Fence(quiet, namespace=namespace), request) == named[name]
    assert rows(quiet, namespace) == before
    assert found["xids"] == 0
    # Not a record per call: the server itself may note a checkpoint or its running transactions now and then.
    assert found["wal_bytes"] < sum(times.values()) * wal.SMALLEST_RECORD_BYTES / 10
