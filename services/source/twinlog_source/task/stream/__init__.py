"""The task's end of the stream to its driver: what it hears, and what it tells."""
