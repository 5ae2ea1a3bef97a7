"""Access to Kafka: ports (Protocols) and their implementation. The only package that imports Kafka client
libraries."""
