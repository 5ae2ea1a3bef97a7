"""Fakes, fixtures and waits for our tests and for users' tests."""
