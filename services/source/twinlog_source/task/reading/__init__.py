"""What a task reads from its source: which partitions, how much, and how it reacts to missing records."""
