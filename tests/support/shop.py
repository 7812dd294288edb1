"""The story that the README's audit section is told about: an order that was quoted, decided, charged and shipped."""

from __future__ import annotations

from effectfence_pg import EffectCert
from tests.support.world import World


def tell(world: World) -> dict[str, EffectCert]:
    """Everything that happened in the shop; the same certificates whenever it is told."""
    fence, told = world.fence, {}

    def done(intent: str, result: object, **facts: object) -> EffectCert:
        told[intent] = world.commit(intent, result, **{"args": {}, **facts})
        return told[intent]

    done("prices:2026-05", {"usd": 4900}, domain="prices", tool="publish_prices", agent="agent-price")
    done(
        "quote:order-123",
        {"amount_cents": 4900},
        domain="order:123",
        tool="quote",
        agent="agent-sales",
        read_set=fence.observe("prices"),
    )
    decision = done(
        "decide:order-123",
        "charge the card on file",
        domain="decision:123",
        tool="decide",
        agent="agent-planner",
        read_set=fence.observe("order:123"),
        observes=("prices:2026-05",),
    )
    charge = done(
        "charge:order-123",
        {"charge_id": "ch_1"},
        domain="order:123",
        tool="charge_card",
        agent="agent-billing",
        args={"amount_cents": 4900},
        parent=decision.hash,
    )
    done("ship:order-123", {"parcel": 7}, domain="parcels", tool="ship", agent="agent-stock", parent=charge.hash)
    # An outcome that nobody knew, reconciled, and what rests on it.
    world.put("failed", "refund:order-99", domain="order:99", tool="refund", agent="agent-billing")
    fence.reconcile(
        "refund:order-99", attempt=1, outcome="happened", result="re_1", evidence="the provider's log", operator="olga"
    )
    done("mail:order-99", "sent", domain="mail", tool="send_mail", agent="agent-mail", observes=("refund:order-99",))
    # And one that nobody has decided yet.
    world.put("failed", "charge:order-77", domain="order:77", tool="charge_card", agent="agent-billing")
    return told
