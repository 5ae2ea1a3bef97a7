"""Which topics are copied, where they begin, and what happens when originals or copies are recreated or lose
records."""
