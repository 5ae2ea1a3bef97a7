"""Ownership of a flow: which process of a service works at it, and what the others do meanwhile."""
