"""The records of a flow on its target: the last move, the moved groups, and the state of the source."""
