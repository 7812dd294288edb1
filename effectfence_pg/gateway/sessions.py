"""What each session has read, so that its later effects rest on it."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from effectfence_pg.values import ReadSetEntry

MAX_SESSIONS: Final = 1000
MAX_DOMAINS: Final = 256
"""Domains of one session that are remembered, the latest ones: as many as a request may carry."""


class Sessions:
    """Entries of domains, by session and tenant. The least used sessions are forgotten first."""

    def __init__(self) -> None:
        self._read: OrderedDict[tuple[str, str], OrderedDict[str, ReadSetEntry]] = OrderedDict()

    def observed(self, session: str, namespace: str, entries: Iterable[ReadSetEntry]) -> None:
        """This was read: the numbers are those from before the read."""
        read = self._read.setdefault((session, namespace), OrderedDict())
        self._read.move_to_end((session, namespace))
        for entry in entries:
            read[entry.domain] = entry
            read.move_to_end(entry.domain)
        while len(read) > MAX_DOMAINS:
            read.popitem(last=False)
        while len(self._read) > MAX_SESSIONS:
            self._read.popitem(last=False)

    def read_set(self, session: str, namespace: str) -> tuple[ReadSetEntry, ...]:
        """What the next effect of this session rests on."""
        read = self._read.get((session, namespace))
        return () if read is None else tuple(read.values())

    def acted(self, session: str, namespace: str, domain: str, seq: int) -> None:
        """A session knows its own effect: what it has read of that domain is now as of the effect."""
        read = self._read.get((session, namespace))
        entry = None if read is None else read.get(domain)
        if read is not None and entry is not None and entry.seq + 1 == seq:
            read[domain] = entry.model_copy(update={"seq": seq})
