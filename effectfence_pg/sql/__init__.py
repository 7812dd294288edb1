"""SQLAlchemy Core statements: built here, executed elsewhere."""
