"""Chaos: a server that crashes during a storm, an external witness, and what must hold afterwards."""
