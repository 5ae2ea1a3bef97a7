"""Batches from the source as they lie in the log."""
