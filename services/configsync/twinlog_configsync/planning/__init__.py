"""Decides what there is to do for a flow, and why: topics, configs, deletions, explanations. Pure."""
