"""What auditors and operators do with the record: walk it, recompute it, carry it elsewhere, and look after the server."""
