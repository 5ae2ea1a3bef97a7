"""Twinlog's source service: copies the data: Spark epochs, exactly once."""
