"""`twinlog state`: backup and restore of a flow's state in its internal topics."""
