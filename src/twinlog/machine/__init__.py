"""This machine, to all that runs on it: its Java, the directories of its user, locks of living processes."""
