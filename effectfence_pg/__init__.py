"""A durable fence between AI agents and the world, on PostgreSQL."""
