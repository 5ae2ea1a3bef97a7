"""Commands about copying: partitions, pauses, limits, positions, gaps."""
