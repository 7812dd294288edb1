"""Engines that act as one of our roles, or as one tenant of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import sqlalchemy as sa


def url_as(engine: sa.Engine, role: str, **settings: str) -> str:
    """The URL of sessions that are this role from their first statement on."""
    options = " ".join(f"-c {name}={value}" for name, value in {"role": role, **settings}.items())
    return engine.url.update_query_dict({"options": options}).render_as_string(hide_password=False)


@contextlib.contextmanager
def acting_as(engine: sa.Engine, role: str, **settings: str) -> Iterator[sa.Engine]:
    """An engine on the same database whose sessions are this role."""
    made = sa.create_engine(url_as(engine, role, **settings))
    try:
        yield made
    finally:
        made.dispose()
