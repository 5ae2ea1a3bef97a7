"""Preserved copies: every record has the same offset in the copy as on the source (docs/adr/0008)."""
