"""This machine's Java, its user's directories, and locks of living processes."""
