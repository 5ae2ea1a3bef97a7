"""Runs moves and records them."""
