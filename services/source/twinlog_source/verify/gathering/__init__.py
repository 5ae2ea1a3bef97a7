"""Gathers the facts about a flow before the first record is compared."""
