from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effectfence_pg.errors import InvalidRequest
from effectfence_pg.values import EffectRequest, check_name, key_of, parse_request

unhurried = settings(deadline=None)
anything = st.text(st.characters(), max_size=40) | st.integers(0, 600).map(lambda size: "é" * size)


def usable(text: str) -> bool:
    try:
        return 0 < len(text.encode()) <= 1024 and "\0" not in text
    except UnicodeEncodeError:
        return False


@unhurried
@given(anything)
def test_a_name_is_taken_when_utf8_and_postgresql_can_hold_it(text: str) -> None:
    facts = {"intent": text, "domain": "d", "tool": "t", "agent": "a"}
    if usable(text):
        assert check_name(text, field="intent") == text
        assert parse_request(facts).intent == text
        assert parse_request(facts).intent_key == key_of(text)
        return
    for refuse in (lambda: check_name(text, field="intent"), lambda: parse_request(facts)):
        with pytest.raises(InvalidRequest) as refused:
            refuse()
        assert refused.value.field == "intent"


@unhurried
@given(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8), st.text(min_size=1), st.text(min_size=1))
def test_f06_two_pairs_of_names_share_a_fingerprint_only_when_they_are_equal(
    domain: str, tool: str, other_domain: str, other_tool: str
) -> None:
    def made(where: str, what: str) -> bytes:
        where, what = where.replace("\0", "0"), what.replace("\0", "0")
        return EffectRequest(intent="i", domain=where, tool=what, agent="a").fingerprint.args_digest

    same = [name.replace("\0", "0") for name in (domain, tool)] == [
        name.replace("\0", "0") for name in (other_domain, other_tool)
    ]
    assert (made(domain, tool) == made(other_domain, other_tool)) == same
    assert made(domain + tool, tool) != made(domain, tool + tool)
