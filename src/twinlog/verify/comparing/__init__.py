"""The pass over both logs: equal records are counted, the rest becomes hunks."""
