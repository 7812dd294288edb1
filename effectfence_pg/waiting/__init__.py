"""Asking with patience: one poll of a process for all who wait for the same intent, and hearing instead of polling."""
