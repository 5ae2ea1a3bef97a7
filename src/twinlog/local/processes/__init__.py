"""Processes that end with the one that started them."""
