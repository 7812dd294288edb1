"""A tool through the fence: prepare, keep the lease, call, commit or abort; as a call, as a decorator, in a transaction."""
