"""What a service says of itself: structured logs and metrics. A failure here never stops a service."""
