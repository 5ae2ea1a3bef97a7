"""Sends batches to the target: order in a partition, delivery, the producer."""
