"""Limits that both ends of a gRPC connection have to agree on."""

MAX_CONCURRENT_RPCS = 4_000
"""So many calls may be open at a server, streams of tasks and watchers among them; more are refused with
RESOURCE_EXHAUSTED."""
MAX_CONCURRENT_STREAMS = 1_000
"""So many calls may be open on one connection."""
MAX_CALLS_PER_CALLER = 500
"""Open at the same time, streams among them: of one identity, or of one address where nobody is asked who
calls."""

MAX_MESSAGE_BYTES = 16 << 20
"""Largest request or response: a page of 10 000 partitions is about 3 MB."""
