"""Transactions over the wire: coordinator, identities, fencing, hanging transactions."""
