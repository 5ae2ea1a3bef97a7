"""Twinlog's checkpoint service: translates and syncs consumer group offsets."""
