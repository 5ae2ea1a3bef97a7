"""The loop of one flow: passes, commands, and the feeds that watchers follow."""
