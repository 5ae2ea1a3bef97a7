"""Checks of a configuration before anything starts: facts of the clusters, and their judgement."""
