"""Embedded Kafka: finds Java, fetches Kafka, starts and stops real brokers for the demo, the tests and the
benchmark.

Start reading at `cluster.py` (what a user starts), then `processes/process.py` (why nothing outlives its
owner).
"""
