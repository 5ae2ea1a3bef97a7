"""Which topics are copied, where they begin, and what becomes of originals and copies."""
