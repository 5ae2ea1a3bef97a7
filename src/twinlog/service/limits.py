"""Limits that both ends of a gRPC connection have to agree on."""

MAX_MESSAGE_BYTES = 16 << 20
"""Largest request or response: a page of 10 000 partitions is about 3 MB."""
