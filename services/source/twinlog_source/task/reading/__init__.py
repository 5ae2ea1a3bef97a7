"""What a task reads of its source: which partitions, how much, and what is no longer there."""
