"""What a process remembers of the intents it has seen."""

from __future__ import annotations

from threading import Lock

from effectfence_pg.waiting.forking import begin_anew_at_fork


class Recent:
    """The intents seen last, a bounded number of them: a hint and nothing more, safe to lose and to share between threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._keys: dict[bytes, bool] = {}
        self._lock = Lock()
        begin_anew_at_fork(self)

    def begin_anew(self) -> None:
        """In a forked process: what was seen stays true."""
        self._lock = Lock()

    def get(self, key: bytes) -> bool | None:
        """Whether its certificate was seen; None when the intent was not."""
        return self._keys.get(key)

    def add(self, key: bytes, *, sealed: bool = False) -> None:
        """Remember an intent; the one that came first is forgotten."""
        if self._keys.get(key) == sealed:
            return
        with self._lock:
            self._keys[key] = sealed
            if len(self._keys) > self._limit:
                del self._keys[next(iter(self._keys))]
