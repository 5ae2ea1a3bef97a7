"""The loop of one flow: passes, commands, and the feeds for watchers."""
