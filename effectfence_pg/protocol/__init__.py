"""The rules of the fence as pure values: no I/O happens below this package."""
