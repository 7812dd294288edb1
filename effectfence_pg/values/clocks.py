"""Vector clocks: which effect could have known of which."""

from hashlib import sha256
from typing import Annotated, Self

from pydantic import ConfigDict, Field, RootModel

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.values.canonical import canonical_json
from effectfence_pg.values.names import Text
from effectfence_pg.values.trusted import trusted

MAX_COUNT = 2**64 - 1
"""The largest count of one agent, as in the original's certificates."""

Count = Annotated[int, Field(strict=True, ge=0, le=MAX_COUNT)]


class VectorClock(RootModel[dict[Text, Count]]):
    """Counts by agent. A count of zero is kept: it is part of the digest."""

    model_config = ConfigDict(frozen=True)

    root: dict[Text, Count] = Field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(frozenset(self.root.items()))

    def get(self, agent: str) -> int:
        """Return the agent's count, 0 when it has none."""
        return self.root.get(agent, 0)

    def tick(self, agent: str) -> Self:
        """Return the clock with the agent's count one higher.

        Raises:
            InvalidRequest: The count is at its limit of 2^64 - 1.
        """
        count = self.get(agent)
        if count >= MAX_COUNT:
            raise InvalidRequest(field="vector_clock", reason=f"the count of {agent[:64]!r} is at its limit")
        ticked = {**self.root, agent: count + 1}
        # What can be no name is told so by the validation, which takes longer than all the rest.
        return trusted(type(self), {"root": ticked}) if agent.isascii() else type(self)(ticked)

    def merge(self, other: Self) -> Self:
        """Return the least clock that is at or after both."""
        merged = dict(self.root)
        for agent, count in other.root.items():
            merged[agent] = max(count, merged.get(agent, 0))
        return type(self)(merged)

    def le(self, other: Self) -> bool:
        """Tell whether everything this clock knows of, the other knows of too."""
        return all(count <= other.get(agent) for agent, count in self.root.items())

    def concurrent(self, other: Self) -> bool:
        """Tell whether neither clock is at or before the other."""
        return not self.le(other) and not other.le(self)

    def digest(self) -> str:
        """Return the lower hex SHA-256 of the clock's canonical JSON."""
        return sha256(canonical_json({**self.root}).encode()).hexdigest()
