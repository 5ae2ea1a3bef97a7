"""The pass over both logs: what is equal is counted, what is not becomes hunks."""
