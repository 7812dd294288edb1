"""A private PostgreSQL for the demonstration and the tests."""

from effectfence_pg.embedded.choice import Database, open_database, own_server
from effectfence_pg.embedded.errors import EmbeddedUnavailable, NoDatabase
from effectfence_pg.embedded.server import PrivateServer, private_server

__all__ = [
    "Database",
    "EmbeddedUnavailable",
    "NoDatabase",
    "PrivateServer",
    "open_database",
    "own_server",
    "private_server",
]
