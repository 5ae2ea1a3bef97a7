"""Fakes, fixtures and waits for tests: public, used by ours and by users."""
