"""One fence for each tenant, made when it is first called for."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from effectfence_pg.async_fence import AsyncFence

if TYPE_CHECKING:
    from effectfence_pg.values import FenceConfig

MAX_FENCES: Final = 32


class Tenants:
    """Fences on one database, by namespace. The least used ones are let go when nothing of theirs runs.

    Args:
        url: The database.
        config: Limits and defaults of every fence.
    """

    def __init__(self, url: str, config: FenceConfig | None = None) -> None:
        self._url = url
        self._config = config
        self._fences: OrderedDict[str, AsyncFence] = OrderedDict()
        self._users: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._fences)

    async def enter(self, namespace: str) -> AsyncFence:
        """The fence of a tenant; `leave` it afterwards.

        Raises:
            InvalidRequest: It is no name of a tenant.
        """
        fence = self._fences.get(namespace)
        if fence is None:
            fence = self._fences[namespace] = AsyncFence(self._url, namespace=namespace, config=self._config)
        self._fences.move_to_end(namespace)
        self._users[namespace] = self._users.get(namespace, 0) + 1
        await self._trim()
        return fence

    def leave(self, namespace: str) -> None:
        """A call of this tenant is over."""
        self._users[namespace] -= 1

    async def _trim(self) -> None:
        idle = [name for name in self._fences if not self._users.get(name)]
        # All are out of reach before the first wait: a call that comes meanwhile must not get one that is about to be closed.
        going = [self._fences.pop(name) for name in idle[: max(len(self._fences) - MAX_FENCES, 0)]]
        self._users = {name: users for name, users in self._users.items() if users}
        for fence in going:
            await fence.aclose()

    async def aclose(self) -> None:
        """Let all of them go."""
        while self._fences:
            await self._fences.popitem()[1].aclose()
