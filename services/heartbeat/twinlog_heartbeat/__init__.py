"""Twinlog's heartbeat service: writes heartbeats through every flow and measures their delay."""
