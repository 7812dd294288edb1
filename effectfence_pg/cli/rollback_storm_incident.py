"""One incident, step by step: a version is deployed for a config that the system no longer believes in.

Three branches share two tools. B writes X = 1; C reads it and deploys version 2 because X is 1; A contradicts B, and B is
rolled back: X is 0 again. What becomes of C?
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from effectfence_pg.cli.rollback_storm_naive import NaiveFence
from effectfence_pg.values import Aborted, Compensation, EffectRequest, Fresh

if TYPE_CHECKING:
    from effectfence_pg.fence import Fence
    from effectfence_pg.values import EffectCert, Held, PreparedEffect

STEPS = (
    "B calls write_config(X=1), speculatively",
    "C reads X = 1 and calls deploy(version=2)",
    "A contradicts B, and B is rolled back",
    "C is reconciled",
)
"""What happens, whichever fence decides."""


@dataclass(slots=True)
class Tools:
    """The two tools that the branches share."""

    config: dict[str, int] = field(default_factory=lambda: {"X": 0})
    version: int = 1

    def call(self, tool: str, args: Any) -> Any:
        """Run a tool."""
        if tool == "write_config":
            self.config |= args
        else:
            self.version = args["version"]
        return args

    def undo(self, prepared: PreparedEffect) -> Any:
        """Run the tool of a compensation."""
        return self.call(prepared.tool, prepared.args)

    @property
    def holds(self) -> bool:
        """Version 2 is for X == 1, and version 1 for X == 0."""
        return self.version == self.config["X"] + 1

    def __str__(self) -> str:
        return f"version {self.version} on X = {self.config['X']}"


@dataclass(frozen=True, slots=True)
class Incident:
    """What one fence said at each step, and what was left in the end."""

    answers: tuple[str, ...]
    deployed: bool
    tools: Tools

    @property
    def holds(self) -> bool:
        """Nothing is certified that does not hold."""
        return self.tools.holds and not self.deployed

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {"answers": list(self.answers), "deploy_committed": self.deployed, "left": str(self.tools)}


def naive_incident() -> Incident:
    """Every effect by its own fence."""
    fence, tools = NaiveFence(), Tools()
    fence.prepare("write_config", "config", branch="B", read_set={})
    tools.call("write_config", {"X": 1})
    fence.hold("write_config")
    answers = ["held"]
    read_set = fence.observe("config")
    if tools.config["X"] == 1:
        fence.prepare("deploy", "service", branch="C", read_set=read_set)
        tools.call("deploy", {"version": 2})
        fence.hold("deploy")
    answers.append("held")
    fallen = fence.roll_back("B")
    answers.append(f"{' and '.join(fallen)} falls")
    tools.call("write_config", {"X": 0})
    deployed = fence.commit("deploy")
    answers.append("committed: its own fence is valid" if deployed else "aborted")
    return Incident(tuple(answers), deployed, tools)


def fenced_incident(fence: Fence) -> Incident:
    """The same calls on the fence of this library, in a namespace where nothing has happened yet."""
    tools = Tools()

    def run(request: EffectRequest) -> EffectCert | Held:
        verdict = fence.prepare(request)
        if not isinstance(verdict, Fresh):
            raise NotFreshError(request.intent)
        result = tools.call(request.tool, request.args)
        return fence.commit(verdict.prepared, result, closure="hold")

    write = EffectRequest(
        intent="write_config",
        domain="config",
        tool="write_config",
        agent="agent-b",
        args={"X": 1},
        branch="B",
        compensation=Compensation(tool="write_config", args={"X": 0}),
    )
    answers = [_held(run(write))]
    # The number first, then the world.
    read_set = fence.observe("config")
    if tools.config["X"] == 1:
        deploy = EffectRequest(
            intent="deploy",
            domain="service",
            tool="deploy",
            agent="agent-c",
            args={"version": 2},
            read_set=read_set,
            branch="C",
            compensation=Compensation(tool="deploy", args={"version": 1}),
        )
        answers.append(_held(run(deploy)))
    fallen = fence.abort_branch("B", "A contradicts it", actor="agent-a").effects
    answers.append(f"{' and '.join(effect.intent for effect in fallen)} fall")
    outcome = fence.reconcile_branch("C")
    answers.append("aborted with what it rests on" if isinstance(outcome, Aborted) else type(outcome).__name__.lower())
    # Dependents first: the version goes back before the config does.
    fence.compensate(fallen, tools.undo, agent="agent-a")
    deployed = fence.status("deploy").certificate is not None
    return Incident(tuple(answers), deployed, tools)


class NotFreshError(Exception):
    """The namespace is not as new as it has to be."""


def _held(outcome: EffectCert | Held) -> str:
    observed = [blocker.intent for blocker in getattr(outcome, "blockers", ())]
    return f"held; it observes {', '.join(observed)}" if observed else "held"
