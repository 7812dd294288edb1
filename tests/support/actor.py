"""A process that works with the fence on command, so that tests can race it, stop it and kill it.

One JSON object per line: ``{"open": {"url", "namespace", "witness", "config"}}`` says what to work on, and
``{"calls": [[verb, arguments]]}`` makes calls at the same time, each in a thread of its own. It answers every line with the
outcomes in order, and ends with its stdin.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
Call = tuple[str, dict[str, Any]]


class Actor:
    """The process, as its test sees it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def open(self, url: str, namespace: str, *, witness: Path | str = "", **config: Any) -> None:
        """Let it work in this namespace; `outcomes` tells when it is ready."""
        self._say({"open": {"url": url, "namespace": namespace, "witness": str(witness), "config": config}})

    def start(self, *calls: Call) -> None:
        """Let it begin with these calls, all at once."""
        self._say({"calls": calls})

    def outcomes(self) -> list[dict[str, Any]]:
        """How the calls ended."""
        line = self.process.stdout.readline()
        assert line, "the process ended without a word"
        return json.loads(line)

    def do(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Make one call; how it ended."""
        self.start((verb, arguments))
        return self.outcomes()[0]

    def close(self) -> None:
        self.process.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def _say(self, line: dict[str, Any]) -> None:
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()


@contextlib.contextmanager
def actors(count: int) -> Iterator[list[Actor]]:
    """That many processes; they are killed at the end."""
    with contextlib.ExitStack() as exits:
        started: list[Actor] = []
        for _ in range(count):
            started.append(Actor())
            exits.callback(started[-1].close)
        yield started


def ready(of: Sequence[Actor], url: str, namespace: str, **more: Any) -> Sequence[Actor]:
    """Let all of them work in a namespace, with their connections open."""
    for actor in of:
        actor.open(url, namespace, **more)
    assert outcomes(of) == [{"kind": "ready"}] * len(of)
    return of


def outcomes(of: Sequence[Actor]) -> list[dict[str, Any]]:
    """How the calls of all of them ended."""
    return [outcome for actor in of for outcome in actor.outcomes()]


class Script:
    """What the process does in one namespace."""

    def __init__(self, url: str, namespace: str, witness: str, config: dict[str, Any]) -> None:
        from effectfence_pg import Fence, FenceConfig
        from tests.support.witness import Witness

        self.fence = Fence(url, namespace=namespace, config=FenceConfig(**config))
        self.fence.current("nothing")
        self.witness = Witness(witness)

    def outcome(self, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
        from effectfence_pg import FenceError

        try:
            return getattr(self, verb)(**arguments)
        except FenceError as error:
            return {"kind": error.code, "facts": error.facts(), "message": str(error)}
        except Exception as error:
            return {"kind": type(error).__name__, "message": str(error)}

    def prepare(self, **request: Any) -> dict[str, Any]:
        verdict = self.fence.prepare(request)
        if verdict.replayed:
            return {"kind": "replay", "hash": verdict.certificate.hash}
        return {"kind": "fresh", "ticket": verdict.prepared.model_dump(mode="json")}

    def spend(self, ticket: dict[str, Any]) -> dict[str, Any]:
        """The effect itself."""
        self.witness.happened(ticket["intent"], attempt=ticket["attempt"], token=ticket["token"])
        return {"kind": "spent"}

    def commit(self, ticket: dict[str, Any], result: Any) -> dict[str, Any]:
        return {"kind": "committed", "hash": self.fence.commit(ticket, result).hash}

    def abort(self, ticket: dict[str, Any], **how: Any) -> dict[str, Any]:
        return {"kind": "rolled_back", "state": self.fence.abort(ticket, **how).state}

    def renew(self, ticket: dict[str, Any]) -> dict[str, Any]:
        return {"kind": "renewed", "until": self.fence.renew(ticket).lease_expires_at.isoformat()}

    def charge(self, **request: Any) -> dict[str, Any]:
        """All of it: prepare, the effect, commit."""
        admission = self.prepare(**request)
        if admission["kind"] != "fresh":
            return admission
        self.spend(admission["ticket"])
        return self.commit(admission["ticket"], "charged")


def main() -> None:
    from tests.support.racing import Race

    script: Any = None
    for line in sys.stdin:
        command = json.loads(line)
        if opened := command.get("open"):
            if script is not None:
                script.fence.close()
            script, answer = Script(**opened), [{"kind": "ready"}]
        else:
            calls = [partial(script.outcome, *call) for call in command["calls"]]
            answer = Race(calls).start().results()
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
