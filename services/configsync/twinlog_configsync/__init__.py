"""Twinlog's configsync service: decides which topics are copied; syncs their configuration and ACLs."""
