"""A private PostgreSQL for the demonstration and the tests."""

from effectfence_pg.embedded.choice import Database, open_database
from effectfence_pg.embedded.errors import EmbeddedUnavailable
from effectfence_pg.embedded.server import PrivateServer, private_server

__all__ = ["Database", "EmbeddedUnavailable", "PrivateServer", "open_database", "private_server"]
