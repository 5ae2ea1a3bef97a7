"""What a task writes to its target: rounds with transactions, preserved copies, positions, offset syncs."""
