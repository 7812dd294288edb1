"""fenced: a function's calls are effects, told apart by their arguments and answered with the annotated type."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import inspect
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pydantic
import pytest

from effectfence_pg import (
    AsyncFence,
    DerivedIntentWarning,
    Fence,
    IntentFailed,
    IntentMismatch,
    InvalidRequest,
    ResultNotReplayable,
    current_effect,
    never_sent,
    tool_message,
)
from tests.support.witness import Witness
from tests.support.world import World


@pytest.fixture
def ledger(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "ledger")


def test_f01_a_whole_run_that_is_retried_runs_its_tool_once(world: World, ledger: Witness) -> None:
    """Tool call, model error, tool call, model error, tool call, text."""

    @world.fence.fenced(intent="invoice:{number}")
    def send_invoice(number: str) -> dict[str, str]:
        ledger.happened(number)
        return {"sent": number}

    answers: list[Any] = []

    def whole_run(*, model_fails: bool) -> None:
        answers.append(send_invoice("7"))
        if model_fails:
            raise ConnectionError("the model answers 500")

    for fails in (True, True, False):
        with contextlib.suppress(ConnectionError):
            whole_run(model_fails=fails)
    assert answers == [{"sent": "7"}] * 3
    assert ledger.count() == 1
    stats = world.fence.stats()
    assert (stats.admitted, stats.replayed) == (1, 2)


def test_f02_the_same_thing_in_other_words_is_the_same_action(world: World, ledger: Witness) -> None:
    @world.fence.fenced(intent="mail:{invoice}", identity=("customer", "invoice"))
    def mail(customer: str, invoice: str, body: str) -> str:
        ledger.happened(invoice)
        return f"sent: {body}"

    assert mail("ada", "7", "Please pay.") == "sent: Please pay."
    assert mail("ada", "7", "Kindly settle the invoice.") == "sent: Please pay."
    assert ledger.count() == 1
    with pytest.raises(IntentMismatch) as refused:
        mail("bob", "7", "Please pay.")
    assert refused.value.field == "identity"


def test_f02_undeclared_other_words_are_a_mismatch_with_both_digests(world: World, ledger: Witness) -> None:
    @world.fence.fenced(intent="mail:{invoice}")
    def mail(invoice: str, body: str) -> str:
        ledger.happened(invoice)
        return body

    mail("7", "Please pay.")
    with pytest.raises(IntentMismatch) as refused:
        mail("7", "Kindly settle the invoice.")
    assert refused.value.stored_args != refused.value.given_args
    assert ledger.count() == 1


@pytest.mark.parametrize(
    ("name", "value", "looks_like"),
    [
        ("body", "Please pay.", "free text"),
        ("subject", "word " * 40, "free text"),
        ("nonce", "x", "a nonce"),
        ("reference", "6f9619ff-8b86-d011-b42d-00cf4fc964ff", "a nonce"),
        ("api_token", "x", "a credential"),
        ("key", "sk-abcdefghijklmnop", "a credential"),
        ("createdAt", "x", "a timestamp"),
        ("when", "2026-12-01T10:00:00Z", "a timestamp"),
    ],
)
def test_f02_an_argument_that_a_retry_may_not_repeat_is_warned_about(
    world: World, name: str, value: str, looks_like: str
) -> None:
    names: dict[str, Any] = {}
    exec(f"def tool({name}): return 'done'", names)
    with pytest.warns(DerivedIntentWarning, match=looks_like) as warned:
        world.fence.bind(names["tool"])(value)
    assert repr(name) in str(warned[0].message)
    assert value == "x" or value not in str(warned[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        world.fence.bind(names["tool"], intent="named")(value)


def test_calls_without_a_name_are_told_apart_by_their_arguments(world: World, ledger: Witness) -> None:
    @world.fence.fenced()
    def charge(order_id: str, cents: int = 4900) -> int:
        ledger.happened(order_id)
        return cents

    assert [charge("1"), charge(order_id="1"), charge("1", 4900), charge("2"), charge("1", 5000)] == [
        4900,
        4900,
        4900,
        4900,
        5000,
    ]
    assert ledger.count() == 3


def test_f08_two_equal_calls_are_one_effect_unless_both_are_meant(world: World, ledger: Witness) -> None:
    @world.fence.fenced(intent="note:{text_id}")
    def note(text_id: int) -> str:
        ledger.happened("note")
        return "noted"

    assert [note(1), note(1)] == ["noted", "noted"]
    assert ledger.count() == 1
    assert [world.fence.bind(note, occurrence=2)(1), world.fence.bind(note, occurrence=2)(1)] == ["noted"] * 2
    assert ledger.count() == 2

    @world.fence.fenced(intent="ring:{bell}", occurrence="{time_of_day}", identity=("bell",))
    def ring(bell: str, time_of_day: str) -> None:
        ledger.happened("ring")

    for when in ("noon", "night", "noon"):
        ring("big", when)
    assert ledger.count("ring") == 2


def test_names_may_be_callables_or_reach_into_arguments(world: World) -> None:
    @dataclass
    class Order:
        id: str
        lines: list[dict[str, int]]

    @world.fence.fenced(
        intent=lambda order: f"pay:{order.id.lower()}",
        domain="order:{order.id}:{order.lines[0].sku}",
        agent="agent of {order.id}",
    )
    def pay(order: Order) -> str:
        effect = current_effect()
        return f"{effect.intent} {effect.domain} {effect.agent}"

    assert pay(Order("A7", [{"sku": 3}])) == "pay:a7 order:A7:3 agent of A7"


@pytest.mark.parametrize("value", [None, 1.5, [1], {"a": 1}, True])
def test_what_makes_no_name_is_refused_before_anything_happens(world: World, value: Any) -> None:
    def tool(order_id: Any) -> str:
        return pytest.fail("it ran")

    with pytest.raises(InvalidRequest) as refused:
        world.fence.bind(tool, intent="charge:{order_id}")(value)
    assert refused.value.field == "intent"
    with pytest.raises(InvalidRequest):
        world.fence.bind(tool, intent="charge:{nothing}")(value)
    with pytest.raises(TypeError):
        world.fence.bind(tool, intent="charge:{order_id}")()
    assert all(found == [] for found in world.rows().values())


def test_the_domain_is_the_intent_unless_one_is_given(world: World) -> None:
    @world.fence.fenced(intent="charge:{n}", lease_seconds=12, branch=None, agent="billing")
    def charge(n: int) -> str:
        return current_effect().domain

    assert charge(1) == "charge:1"
    row = world.effect("charge:1")
    assert (row["lease_seconds"], row["agent"], row["tool"]) == (12.0, "billing", "charge")


def test_methods_are_tools_of_their_class_and_the_object_is_no_argument(world: World, ledger: Witness) -> None:
    fence = world.fence

    class Billing:
        def __init__(self, name: str) -> None:
            self.name = name

        @fence.fenced(intent="charge:{order_id}")
        def charge(self, order_id: str) -> str:
            ledger.happened(order_id)
            return f"{self.name} charged {order_id}"

        @fence.fenced(intent="acharge:{order_id}")
        async def acharge(self, order_id: str) -> str:
            return f"{self.name} charged {order_id}"

        @classmethod
        @fence.fenced(intent="class:{order_id}")
        def for_all(cls, order_id: str) -> str:
            return cls.__name__

        @staticmethod
        @fence.fenced(intent="static:{order_id}")
        def alone(order_id: str) -> str:
            return order_id

    assert Billing("a").charge("7") == Billing("b").charge("7") == "a charged 7"
    assert asyncio.run(Billing("a").acharge("7")) == "a charged 7"
    assert (Billing.for_all("7"), Billing.alone("7")) == ("Billing", "7")
    assert world.effect("charge:7")["tool"] == "Billing.charge"
    assert world.effect("charge:7")["args"] == '{"order_id":"7"}'


def test_a_wrapped_function_looks_like_the_function(world: World) -> None:
    def charge(order_id: str, cents: int = 1) -> int:
        """Charge the card."""
        return cents

    async def acharge(order_id: str) -> int:
        return 1

    fenced, afenced = world.fence.bind(charge), world.fence.bind(acharge)
    assert inspect.signature(fenced) == inspect.signature(charge)
    assert (fenced.__name__, fenced.__doc__, fenced.__annotations__) == (
        "charge",
        "Charge the card.",
        charge.__annotations__,
    )
    assert inspect.iscoroutinefunction(afenced)
    assert not inspect.iscoroutinefunction(fenced)


def test_one_function_behind_several_fences(world: World, ledger: Witness) -> None:
    @world.fence.fenced(intent="charge:{order_id}")
    def charge(order_id: str) -> str:
        ledger.happened(current_effect().namespace)
        return "done"

    other = Fence(world.engine, namespace=f"{world.namespace}-eu")
    in_europe = other.bind(charge)
    for _ in range(2):
        charge("7")
        in_europe("7")
    assert ledger.count(world.namespace) == ledger.count(f"{world.namespace}-eu") == 1
    named = other.bind(charge, intent="europe:{order_id}")
    named("7")
    assert ledger.count(f"{world.namespace}-eu") == 2


def test_functions_of_both_kinds_behind_an_asynchronous_fence(world: World, ledger: Witness) -> None:
    async def main() -> None:
        url = world.engine.url.render_as_string(hide_password=False)
        async with AsyncFence(url, namespace=world.namespace) as fence:

            @fence.fenced(intent="sync:{n}")
            def blocking(n: int) -> Decimal:
                ledger.happened(current_effect().intent)
                return Decimal(n)

            @fence.fenced(intent="async:{n}")
            async def awaiting(n: int) -> Decimal:
                ledger.happened(current_effect().intent)
                return Decimal(n)

            for _ in range(2):
                assert await blocking(1) == await awaiting(1) == Decimal(1)

    asyncio.run(main())
    assert ledger.count() == 2


def test_a_generator_function_is_no_tool(world: World) -> None:
    def stream() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="generator"):
        world.fence.bind(stream)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclass
class Line:
    sku: UUID
    price: Decimal


class Receipt(pydantic.BaseModel):
    at: datetime
    lines: list[Line]
    colour: Colour = Colour.RED


ID = UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff")
EAST = timezone(timedelta(hours=3))
TYPED: list[tuple[Any, Any]] = [
    (UUID, ID),
    (date, date(2026, 12, 1)),
    (datetime, datetime(2026, 12, 1, 10, 0, 0, 5)),  # noqa: DTZ001 (without a zone is what is meant)
    (datetime, datetime(2026, 12, 1, 10, tzinfo=UTC)),
    (Decimal, Decimal("1.50")),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (bytes, b"\xff\x00"),
    (set[int], {3, 1, 2}),
    (frozenset[str], frozenset({"b", "a"})),
    (tuple[int, str], (1, "a")),
    (Line, Line(ID, Decimal(1))),
    (Receipt, Receipt(at=datetime(2026, 12, 1, 10, tzinfo=EAST), lines=[Line(ID, Decimal(1))])),
    (dict[str, list[Line]], {"lines": [Line(ID, Decimal(1))]}),
    (Receipt | None, None),
    (None, None),
]


@pytest.mark.parametrize(("kind", "value"), TYPED, ids=[f"{n}-{kind}" for n, (kind, _) in enumerate(TYPED)])
def test_f22_a_result_comes_back_as_the_annotated_type(world: World, ledger: Witness, kind: Any, value: Any) -> None:
    def tool() -> Any:
        ledger.happened("tool")
        return value

    tool.__annotations__["return"] = kind
    fenced = world.fence.bind(tool, intent="typed")
    first, again = fenced(), fenced()
    assert first is value
    assert (type(again), again) == (type(value), value)
    assert ledger.count() == 1


@pytest.mark.parametrize(("kind", "value"), TYPED, ids=[f"{n}-{kind}" for n, (kind, _) in enumerate(TYPED)])
def test_f22_typed_arguments_have_one_identity(world: World, ledger: Witness, kind: Any, value: Any) -> None:
    def tool(value: Any) -> None:
        ledger.happened("tool")

    fenced = world.fence.bind(tool, intent="typed")
    fenced(value)
    fenced(value)
    if isinstance(value, set | frozenset):
        fenced(type(value)(sorted(value, reverse=True)))
    assert ledger.count() == 1


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), "args.value"),
        ({"deep": [1, object()]}, "args.value.deep[1]"),
        (Line(ID, object()), "args.value.price"),  # type: ignore[arg-type]
        (Decimal("NaN"), "args.value"),
        ([float("nan")], "args.value[0]"),
        ({1: "a"}, "args.value"),
        (timedelta(1), "args.value"),
        ((n for n in range(3)), "args.value"),
        ("\ud800", "args.value"),
    ],
)
def test_f22_what_has_no_one_form_is_refused_by_its_path(world: World, value: Any, path: str) -> None:
    def tool(value: Any) -> None:
        pytest.fail("it ran")

    with pytest.raises(InvalidRequest) as refused:
        world.fence.bind(tool, intent="typed")(value)
    assert refused.value.field == path
    assert all(found == [] for found in world.rows().values())


def test_f03_a_tool_that_edits_its_arguments_is_on_record_with_those_of_admission(
    world: World, ledger: Witness
) -> None:
    @dataclass
    class Charge:
        currency: str = "eur"
        lines: list[int] = field(default_factory=lambda: [1])

    @world.fence.fenced(intent="charge:1")
    def tool(charge: Charge) -> str:
        ledger.happened("charge:1")
        charge.currency = "EUR"
        charge.lines.append(2)
        return "done"

    assert [tool(Charge()), tool(Charge())] == ["done", "done"]
    assert world.effect()["args"] == '{"charge":{"currency":"eur","lines":[1]}}'
    assert ledger.count() == 1


class Unequal:
    pass


@pytest.mark.parametrize(
    ("kind", "value"),
    [(Any, Unequal()), (float, float("nan")), (Any, iter([1])), (Receipt, Unequal()), (str, "\ud800")],
)
def test_f21_a_result_that_would_not_come_back_equal_says_so(
    world: World, ledger: Witness, kind: Any, value: Any
) -> None:
    def tool() -> Any:
        ledger.happened("tool")
        return value

    tool.__annotations__["return"] = kind
    fenced = world.fence.bind(tool, intent="typed")
    assert fenced() is value
    with pytest.raises(ResultNotReplayable):
        fenced()
    assert ledger.count() == 1


def test_a_result_of_another_type_than_annotated_comes_back_as_it_was(world: World) -> None:
    def tool() -> str:
        return {"not": "text"}  # type: ignore[return-value]

    fenced = world.fence.bind(tool, intent="typed")
    assert fenced() == fenced() == {"not": "text"}


def test_an_annotation_that_cannot_be_resolved_is_no_annotation(world: World) -> None:
    def tool() -> NotDefinedAnywhere:  # noqa: F821 # type: ignore[name-defined]
        return {"a": 1}

    fenced = world.fence.bind(tool, intent="typed")
    assert fenced() == fenced() == {"a": 1}


def test_errors_that_came_before_the_first_byte_may_be_declared_as_no_effect(world: World, ledger: Witness) -> None:
    @world.fence.fenced(intent="post:{n}", no_effect=never_sent)
    def post(n: int) -> str:
        if current_effect().attempt == 1:
            raise ConnectionRefusedError(111, "refused")
        ledger.happened("post")
        return "sent"

    with pytest.raises(ConnectionRefusedError):
        post(1)
    assert post(1) == "sent"
    assert ledger.count() == 1


def test_a_verify_hook_implies_its_policy(world: World) -> None:
    from effectfence_pg import Happened

    @world.fence.fenced(intent="charge:{n}", verify=lambda effect: Happened([effect.attempt, effect.args]))
    def charge(n: int) -> list[Any]:
        ran.append(n)
        raise SystemExit  # the process dies

    ran: list[int] = []
    with pytest.raises(SystemExit):
        charge(1)
    assert world.effect("charge:1")["on_lease_expiry"] == "verify"
    # It could not even report that.
    over = datetime(2026, 1, 1, tzinfo=UTC)
    world.edit("charge:1", state="in_flight", failure=None, reason=None, lease_expires_at=over)
    assert charge(1) == [1, {"n": 1}]
    assert ran == [1]


def test_a_refusal_is_a_message_that_a_model_can_act_on(world: World) -> None:
    @world.fence.fenced(intent="charge:1")
    def charge() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        charge()
    with pytest.raises(IntentFailed) as refused:
        charge()
    message = tool_message(refused.value)
    assert message.startswith("[intent_failed] intent 'charge:1' attempt 1 is failed: TimeoutError [timeout]")
    assert message.endswith(refused.value.advice)
    with pytest.raises(TypeError):
        tool_message(TimeoutError())  # type: ignore[arg-type]
