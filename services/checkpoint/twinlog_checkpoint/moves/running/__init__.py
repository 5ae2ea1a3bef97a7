"""Carries moves out, and records them."""
