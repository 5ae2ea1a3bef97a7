"""Limits on which both ends of a gRPC connection must agree."""

MAX_CONCURRENT_RPCS = 4_000
"""Most open calls of a server, including streams of tasks and watchers; more are refused with
RESOURCE_EXHAUSTED."""
MAX_CONCURRENT_STREAMS = 1_000
"""Most open calls on one connection."""
MAX_CALLS_PER_CALLER = 500
"""Most open calls of one identity, streams included; of one address on a port without authentication."""

MAX_MESSAGE_BYTES = 16 << 20
"""Largest request or response: a page of 10 000 partitions is about 3 MB."""
