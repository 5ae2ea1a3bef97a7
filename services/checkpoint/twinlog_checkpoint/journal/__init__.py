"""What is recorded of a flow on its target: the last move, the groups that moved, and its source."""
