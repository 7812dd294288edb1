"""``gateway check``, ``probe`` and ``demo``: what they say, and with which exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.gateway.calls import Caller, ToolCall, domain_of, intent_of, request_of
from effectfence_pg.gateway.catalogue import Catalogue
from effectfence_pg.gateway.policy import Action, Policy, read_policy
from effectfence_pg.gateway.sessions import Sessions
from effectfence_pg.gateway.tenants import Tenants
from effectfence_pg.values import ReadSetEntry
from tests.support.faces import command, run, upstream
from tests.support.witness import Witness

GOOD = """
server = "shop"
namespace = "{header.x-tenant}"
[defaults]
wait_seconds = 5.0
[[tool]]
match = "charge*"
action = "fence"
intent = "charge:{order.id}"
domain = "order:{order.id}"
identity = ["order", "cents"]
on_tool_error = "release"
on_lease_expiry = "takeover"
[[tool]]
match = "get_*"
action = "observe"
domain = "order:{order_id}"
"""

WRONG = [
    ("nonsense = 1", "nonsense"),
    ("namespace = 7", "namespace"),
    ("not toml", "policy"),
    ('[[tool]]\nmatch = "a"\naction = "maybe"', "tool[0].action"),
    ('[[tool]]\nmatch = "a"\n[[tool]]\naction = "pass"', "tool[1].match"),
    ('[[tool]]\nmatch = "a"\nintent = "x:{}"', "tool[0].intent"),
    ('[[tool]]\nmatch = "a"\nintent = "x:{a!r}"', "tool[0].intent"),
    ('[[tool]]\nmatch = "a"\nintent = "x:{a"', "tool[0].intent"),
    ('[[tool]]\nmatch = "a"\naction = "pass"\nintent = "x"', "tool[0]"),
    ('[[tool]]\nmatch = "a"\nidentity = []', "tool[0].identity"),
    ("[defaults]\nlease_seconds = 0.0", "defaults.lease_seconds"),
    ("[defaults]\nwait_seconds = nan", "defaults.wait_seconds"),
    ('[defaults]\non_lease_expiry = "verify"', "defaults.on_lease_expiry"),
]


@pytest.mark.parametrize(("text", "field"), WRONG)
def test_a_wrong_policy_is_refused_by_its_field(tmp_path: Path, text: str, field: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    with pytest.raises(InvalidRequest) as refused:
        read_policy(file)
    assert refused.value.field == field


def test_check_says_what_a_policy_comes_to(tmp_path: Path) -> None:
    good, wrong = tmp_path / "good.toml", tmp_path / "wrong.toml"
    good.write_text(GOOD)
    wrong.write_text(WRONG[3][0])
    status, out, _ = command("gateway", "check", str(good))
    assert status == 0
    assert "charge*: fence, on_tool_error release" in out
    status, out, _ = command("gateway", "check", str(wrong), "--json")
    told = json.loads(out)
    assert (status, told["valid"], told["field"]) == (1, False, "tool[0].action")


def call(tool: str, arguments: Any, meta: Any = None) -> ToolCall:
    return ToolCall({"name": tool, "arguments": arguments, "_meta": meta or {}}, Caller(name="host"), "s")


def test_names_come_from_the_rule_the_client_or_all_arguments(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(GOOD)
    policy = read_policy(file)
    order = {"order": {"id": 7}, "cents": 4900, "note": "thanks"}
    rule = policy.rule("charge_card")
    request = request_of(call("charge_card", order), rule, policy, "shop", ())
    assert (request.intent, request.domain, request.agent) == ("charge:7", "order:7", "host")
    assert (request.identity, request.on_lease_expiry) == (("cents", "order"), "takeover")
    named = intent_of(call("charge_card", order, {"effectfence/key": "k"}), rule, policy, "shop")
    assert named == '["shop","charge_card",{"key":"k"}]'
    with pytest.raises(InvalidRequest, match="domain"):
        domain_of(call("get_order", {}), policy.rule("get_order"), policy, "shop")

    with pytest.raises(InvalidRequest, match="arguments"):
        request_of(call("charge_card", [1]), Policy().rule("x"), Policy(), "shop", ())
    plain = Policy()
    intents = {
        intent_of(call(tool, arguments), plain.rule(tool), plain, server)
        for server, tool, arguments in [
            ("a", "b", {"x": 1, "y": [2.0]}),
            ("a", "b", {"y": [2], "x": 1.0}),  # the same action
            ("a", "b", None),
            ("a", "b", {}),  # and the same again
            ('a","b', "", {}),
            ("a", 'b",""', {}),
        ]
    }
    assert len(intents) == 4
    assert all(len(intent) < 1024 for intent in intents)


def test_hints_are_hints_and_a_change_of_them_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    catalogue = Catalogue()
    assert catalogue.action("never listed") == Action.FENCE
    catalogue.learn([{"name": "a"}, {"name": "b", "annotations": {"readOnlyHint": True}}, {"name": 7}])
    assert (catalogue.action("a"), catalogue.action("b")) == (Action.FENCE, Action.OBSERVE)
    catalogue.learn([{"name": "a", "annotations": {"readOnlyHint": "yes"}}, {"name": "b", "annotations": {}}])
    assert (catalogue.action("a"), catalogue.action("b")) == (Action.FENCE, Action.FENCE)
    assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == ["a", "b"]


def test_a_session_rests_on_its_latest_reads_and_on_its_own_effects_and_no_other_one_does() -> None:
    sessions = Sessions()
    for number in range(300):
        sessions.observed("s", "t", [ReadSetEntry(domain=f"d{number}", seq=4)])
    assert [entry.domain for entry in sessions.read_set("s", "t")] == [f"d{number}" for number in range(44, 300)]
    sessions.acted("s", "t", "d299", 5)
    sessions.acted("s", "t", "d298", 6)  # somebody else acted in between: what was read is stale, and stays so
    assert [entry.seq for entry in sessions.read_set("s", "t")[-2:]] == [4, 5]
    assert sessions.read_set("s", "u") == sessions.read_set("r", "t") == ()


def test_fences_of_tenants_are_let_go_when_there_are_many_and_never_while_they_are_used(database_url: str) -> None:
    async def main() -> None:
        tenants = Tenants(database_url)
        first = await tenants.enter("tenant-0")
        for number in range(1, 40):
            await tenants.enter(f"tenant-{number}")
            tenants.leave(f"tenant-{number}")
        assert await tenants.enter("tenant-0") is first
        assert len(tenants) <= 33
        await tenants.aclose()

    run(main())


def test_probe_proves_a_double_fire_or_says_that_it_cannot_tell(tmp_path: Path) -> None:
    books = Witness(tmp_path / "books")
    status, out, _ = command("probe", "--json", "--tool", "charge", "--calls", "5", "--", *upstream(books.path))
    assert (status, json.loads(out)["verdict"], json.loads(out)["distinct"]) == (1, "double_fire", 5)
    assert json.loads(out)["executions"] == books.count("charge") == 5
    status, out, _ = command("probe", "--tool", "media", "--calls", "3", "--", *upstream(books.path))
    assert status == 0
    assert out.startswith("inconclusive: 3 of 3 calls answered, 1 different answers")
    status, _, err = command("probe", "--tool", "nothing", "--", *upstream(books.path))
    assert status == 2
    assert "no tool 'nothing'" in err


@pytest.mark.parametrize("arguments", [[], ["--url", "http://x", "--", "true"], ["--", "no-such-command-here"]])
def test_a_gateway_needs_one_upstream(arguments: list[str]) -> None:
    status, out, err = command("gateway", *arguments)
    assert (status, out) == (2, "")
    assert "upstream" in err


def test_the_demo_charges_once_behind_gateways(migrated_database: str) -> None:
    status, out, err = command("demo", "--json", EFFECTFENCE_DATABASE_URL=migrated_database)
    assert status == 0, err
    assert json.loads(out) == {"raw": 12, "gateway": 1, "two_gateways": 1, "killed_after_effect": 1}


@pytest.mark.parametrize(("arguments", "extra"), [(["mcp"], "mcp"), (["gateway", "--", "true"], "gateway")])
def test_without_the_extra_one_line_says_what_to_install(arguments: list[str], extra: str) -> None:
    code = (
        "import sys; sys.modules['mcp'] = sys.modules['mcp_types'] = None; from effectfence_pg.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"This command needs an extra: pip install 'effectfence-pg[{extra}]'\n"
