"""Policies of a gateway, and ``gateway check``: what is refused when they are read, and what calls are named by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.gateway.calls import Caller, ToolCall, domain_of, intent_of, request_of
from effectfence_pg.gateway.errors import InvalidArguments
from effectfence_pg.gateway.policy import Policy, read_policy
from tests.support.faces import command

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

NEVER_FILLED = [
    "{}",
    "{.}",
    "{[]}",
    "{..}",
    "{[.]}",
    "{a.}",
    "{.a}",
    "{a[0}",
    "{a",
    "a}",
    "{a}}",
    "{a{b}}",
    "{0}",
    "{1.a}",
]
NEVER_SAID = [
    *NEVER_FILLED,
    *(
        "{tenant}",
        "{arguments.tenant}",
        "{headers.x}",
        "{client}",
        "{client.title}",
        "{client.name.first}",
        "{client[0]}",
    ),
    *("{meta}", "{meta.}", "{meta.0}", "{meta[0]}", "{header}", "{header.x.y}", "{header.0}"),
]
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
    *((f'[[tool]]\nmatch = "a"\nintent = "x:{wrong}"', "tool[0].intent") for wrong in NEVER_FILLED),
    *(
        (f'[[tool]]\nmatch = "a"\n[[tool]]\nmatch = "b"\ndomain = "{wrong}"', "tool[1].domain")
        for wrong in NEVER_FILLED
    ),
    *((f'namespace = "{wrong}"', "namespace") for wrong in NEVER_SAID),
    *((f'agent = "{wrong}"', "agent") for wrong in NEVER_SAID),
    (f'namespace = "{"n" * 129}"', "namespace"),
    (f'namespace = "{"n" * 129}{{client.name}}"', "namespace"),
    ('namespace = "a\\u0000"', "namespace"),
    (f'agent = "{"é" * 513}"', "agent"),
    ('[[tool]]\nmatch = "a"\nidentity = []', "tool[0].identity"),
    ("[defaults]\nlease_seconds = 0.0", "defaults.lease_seconds"),
    ("[defaults]\ncheck_calls = 1", "defaults.check_calls"),
    ('[[tool]]\nmatch = "a"\naction = "pass"\ncheck_calls = true', "tool[0]"),
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


FILLED = [
    "{client.name}",
    "v{client[version]}",
    "{meta.tenant}",
    "{meta[vendor/who].id}",
    "{meta.ids[0]}",
    "{header.x-a}",
]


@pytest.mark.parametrize("template", [*FILLED, "shop {{a}}", "n" * 128])
def test_what_a_client_says_can_name_a_tenant_and_an_agent(tmp_path: Path, template: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(f'namespace = "{template}"\nagent = "{template}"')
    policy = read_policy(file)
    meta = {"tenant": "t", "vendor/who": {"id": 7}, "ids": ["t"]}
    said = ToolCall({"name": "a", "_meta": meta}, Caller("host", "1", {"x-a": "t"}), "s")
    assert said.named("namespace", policy.namespace) == said.named("agent", policy.agent) != ""


def test_a_tenant_from_a_header_is_refused_where_there_are_none(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('agent = "{header.x-user}"')
    status, _, err = command("gateway", "--policy", str(file), "--", "true")
    assert status == 2
    assert "agent: comes from a header" in err


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
    by_a_key = call("charge_card", order, {"effectfence/key": "k"})
    assert intent_of(by_a_key, rule, policy, "shop") == "charge:7"
    assert intent_of(by_a_key, Policy().rule("charge_card"), Policy(), "shop") == '["shop","charge_card",{"key":"k"}]'
    with pytest.raises(
        InvalidArguments, match=r"arguments\.order_id: is needed here: the policy identifies this call by it"
    ):
        domain_of(call("get_order", {}), policy.rule("get_order"), policy, "shop")

    with pytest.raises(InvalidArguments, match=r"arguments\.cents: is needed here"):
        request_of(call("charge_card", {"order": {"id": 7}}), rule, policy, "shop", ())
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
