"""Twinlog: Kafka cross-cluster replication, the successor of MirrorMaker 2."""

__version__ = "0.1.0"
