"""Watches between services: numbered changes, resumable, kept while the other side is away."""
