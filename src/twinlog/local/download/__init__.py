"""Real Kafka's jars and how they get into the cache."""
