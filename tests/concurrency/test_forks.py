"""A process that is forked after its fence was used: its connections are the parent's, and are left alone."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from effectfence_pg import Fence, IntentInFlight
from tests.support.until import until
from tests.support.world import World


@pytest.mark.parametrize("owned", [True, False])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_and_its_parent_never_read_each_others_verdicts(world: World, owned: bool) -> None:
    url = world.engine.url.render_as_string(hide_password=False)
    fence = Fence(url if owned else world.engine, namespace=world.namespace)

    def all_of(whose: str) -> bool:
        done = [fence.run(world.request(f"{whose}:{at}"), lambda: whose) for at in range(30)]
        return all(ran.result == whose and not ran.replayed for ran in done)

    fence.run(world.request("before"), lambda: "before")
    child = os.fork()
    if child == 0:
        good = False
        try:
            good = all_of("child")
        finally:
            os._exit(0 if good else 1)
    assert all_of("parent")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    if owned:
        fence.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("held", ["recent", "room"])
def test_a_process_that_is_forked_while_a_thread_holds_a_lock_or_waits_is_not_held_up(world: World, held: str) -> None:
    fence = world.fence
    prepared = world.admit()
    waiter = threading.Thread(target=lambda: fence.prepare(world.request(), wait_seconds=60))
    waiter.start()
    key = prepared.intent_key
    memory = fence._memory
    until(lambda: memory.room.waits(key) == 1)
    lock = {"recent": memory.recent._lock, "room": memory.room.lock}[held]
    with lock:
        child = os.fork()
        if child == 0:
            good = False
            try:
                # What hangs is ended, and seen by its exit status.
                signal.alarm(10)
                memory.count_retry()
                fence.run(world.request("of the child"), lambda: 1)
                with pytest.raises(IntentInFlight):
                    fence.prepare(world.request(), wait_seconds=0.2)
                good = memory.room.waits(key) == 0
            finally:
                os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    fence.commit(prepared, "done")
    waiter.join(30)
    assert not waiter.is_alive()
