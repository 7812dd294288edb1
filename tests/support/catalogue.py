"""What a database's own catalogue says about our schema, in words that two databases can be compared by."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

OURS = "s.nspname = 'effectfence' AND coalesce(c.relname, '') <> 'alembic_version'"

QUERIES = {
    "schema": "SELECT s.nspname, s.nspacl::text, obj_description(s.oid, 'pg_namespace') FROM pg_namespace s "
    "WHERE s.nspname = 'effectfence'",
    "relations": "SELECT c.relname, c.relkind, c.relpersistence, c.reloptions, c.relacl::text, c.relrowsecurity, "
    "c.relreplident, obj_description(c.oid, 'pg_class') FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace "
    f"WHERE {OURS} AND c.relname NOT LIKE 'alembic%' ORDER BY 1",
    # The place among those that are left: a column that went leaves its number behind.
    "columns": "SELECT c.relname, row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum), a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, "
    "pg_get_expr(d.adbin, d.adrelid), o.collname, a.attstorage, a.attidentity, a.attgenerated, a.attacl::text, "
    "col_description(c.oid, a.attnum) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
    "JOIN pg_namespace s ON s.oid = c.relnamespace LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum "
    "LEFT JOIN pg_collation o ON o.oid = a.attcollation "
    f"WHERE {OURS} AND c.relkind IN ('r', 'v') AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, 2",
    "constraints": "SELECT c.relname, k.conname, k.contype, pg_get_constraintdef(k.oid), k.convalidated, k.condeferrable, "
    "obj_description(k.oid, 'pg_constraint') FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid "
    f"JOIN pg_namespace s ON s.oid = k.connamespace WHERE {OURS} AND k.contype <> 'n' ORDER BY 1, 2",
    "indexes": "SELECT c.relname, pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisunique, x.reloptions "
    "FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_class x ON x.oid = i.indexrelid "
    f"JOIN pg_namespace s ON s.oid = c.relnamespace WHERE {OURS} ORDER BY 1, 2",
    "functions": "SELECT p.proname, pg_get_functiondef(p.oid), p.provolatile, p.proparallel, p.prosecdef, p.proacl::text, "
    "obj_description(p.oid, 'pg_proc') FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace "
    "WHERE s.nspname = 'effectfence' ORDER BY 1, 2",
    "triggers": "SELECT c.relname, t.tgname, pg_get_triggerdef(t.oid), t.tgenabled FROM pg_trigger t "
    "JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace s ON s.oid = c.relnamespace "
    f"WHERE {OURS} AND NOT t.tgisinternal ORDER BY 1, 2",
    "views": "SELECT c.relname, pg_get_viewdef(c.oid) FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace "
    f"WHERE {OURS} AND c.relkind = 'v' ORDER BY 1",
    "policies": "SELECT tablename, policyname, permissive, roles::text, cmd, qual, with_check FROM pg_policies "
    "WHERE schemaname = 'effectfence' ORDER BY 1, 2",
    "others": "SELECT t.typname, t.typtype, format_type(t.typbasetype, t.typtypmod), t.typcollation, t.typnotnull, "
    "t.typdefault, t.typacl::text, (SELECT array_agg(k.conname || ' ' || pg_get_constraintdef(k.oid) ORDER BY k.conname) "
    "FROM pg_constraint k WHERE k.contypid = t.oid) FROM pg_type t JOIN pg_namespace s ON s.oid = t.typnamespace "
    "LEFT JOIN pg_class c ON c.oid = t.typrelid WHERE s.nspname = 'effectfence' AND t.typcategory <> 'A' "
    "AND coalesce(c.relname, '') <> 'alembic_version' ORDER BY 1",
    "defaults": "SELECT d.defaclobjtype, d.defaclacl::text FROM pg_default_acl d ORDER BY 1",
}


def catalogue(engine: sa.Engine) -> dict[str, list[tuple[Any, ...]]]:
    """Everything in schema effectfence, alembic's own table excepted."""
    with engine.connect() as connection:
        return {kind: [tuple(row) for row in connection.execute(sa.text(query))] for kind, query in QUERIES.items()}
