"""Fakes behind the ports of the library: a clock and a Kafka cluster in memory."""
