"""Preserved copies: every record of the source lies at the same offset in its copy (docs/adr/0008)."""
