"""Twinlog's configsync service: decides topics; syncs their configuration and ACLs."""
