"""The table of configuration keys, and of the settings of Kafka's clients."""
