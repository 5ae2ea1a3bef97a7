"""Backup and restore of what a flow keeps in its internal topics (`twinlog state export|import`)."""
