"""Backup and restore of a flow's state in its internal topics (`twinlog state export|import`)."""
