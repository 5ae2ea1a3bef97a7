"""Twinlog's heartbeat service: beats through every flow and measures its delay."""
