"""Twinlog and MirrorMaker 2 side by side: what is run, measured, kept and shown."""
