"""`twinlog state`: backup and restore of what a flow keeps in its internal topics."""
