"""A process that is forked after its fence was used: its connections are the parent's, and are left alone."""

from __future__ import annotations

import os

import pytest

from effectfence_pg import Fence
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
