"""Kafka at the edge: ports (Protocols) and their one implementation. The only importer of Kafka client
libraries."""
