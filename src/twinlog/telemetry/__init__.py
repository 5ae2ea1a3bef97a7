"""Structured logs and metrics of a service. A failure here never stops a service."""
