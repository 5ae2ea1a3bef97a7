"""Kafka's wire protocol as far as it is written by hand: connections, frames, requests."""
