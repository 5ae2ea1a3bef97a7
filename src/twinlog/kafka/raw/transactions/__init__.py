"""Transactions over the wire: coordinator, identities, fencing, what hangs."""
