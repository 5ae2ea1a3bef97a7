"""Embedded Kafka: finds Java, downloads Kafka, starts and stops real brokers for the demo, the tests and the
benchmark.

Begin reading at `cluster.py` (what a user starts), then `processes/process.py` (why no process outlives its
owner).
"""
