"""A lineage as a value: what a certificate rests on, or what rests on it, with every edge between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from effectfence_pg.audit.errors import UnknownCertificate
from effectfence_pg.audit.reading import Reader, rows
from effectfence_pg.rendering import Edge, Graph, Node
from effectfence_pg.sql import audit
from effectfence_pg.values import key_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def lineage(reader: Reader, namespace: str, name: str, *, dependents: bool = False, depth: int | None = None) -> Graph:
    """Everything that a certificate rests on, itself first.

    Args:
        reader: The connection.
        namespace: The tenant.
        name: A certificate's hash, or an intent that is committed.
        dependents: What rests on it instead.
        depth: How many steps to go; all when not given.

    Raises:
        UnknownCertificate: There is none.
    """
    hash_ = _certificate(reader, namespace, name)
    function = "dependents" if dependents else "lineage"
    walked = rows(
        reader,
        audit.WALK.replace("{function}", function),
        {"namespace": namespace, "hash": hash_, "depth": 2**31 - 1 if depth is None else depth},
    )
    nodes = tuple(
        Node(
            intent=row["intent"],
            attempt=row["attempt"],
            state=row["state"],
            certificate=row["certificate"],
            domain=row["domain"],
            seq=row["seq"],
            tool=row["tool"],
            agent=row["agent"],
            depth=row["depth"],
        )
        for row in walked
    )
    return Graph(root=hash_, dependents=dependents, nodes=nodes, edges=_edges(reader, namespace, walked, dependents))


def _certificate(reader: Reader, namespace: str, name: str) -> str:
    parameters = {"namespace": namespace, "name": name, "intent_key": key_of(name)}
    found = rows(reader, audit.FIND_CERTIFICATE, parameters, quiet=True)
    if not found:
        raise UnknownCertificate(namespace=namespace, name=name)
    return str(found[0]["hash"])


def _edges(reader: Reader, namespace: str, walked: list[dict[str, Any]], dependents: bool) -> tuple[Edge, ...]:
    """All edges between the nodes: those of certificates, and the step to every node that has none."""
    known = {(row["intent"], row["attempt"]) for row in walked}
    hashes = [row["certificate"] for row in walked if row["certificate"] is not None]
    found: set[Edge] = set()
    for row in rows(reader, audit.OBSERVED, {"namespace": namespace, "hashes": hashes}):
        observer = (row["intent"], row["attempt"])
        found.update(
            Edge(observer, (intent, attempt), via)
            for intent, attempt, via in row["observed"]
            if (intent, attempt) in known
        )
    found.update(_step(row, dependents) for row in walked if row["through"] is not None)
    return tuple(sorted(found))


def _step(row: Mapping[str, Any], dependents: bool) -> Edge:
    here, there = (row["intent"], row["attempt"]), (row["through"], row["through_attempt"])
    return Edge(here, there, row["via"]) if dependents else Edge(there, here, row["via"])
