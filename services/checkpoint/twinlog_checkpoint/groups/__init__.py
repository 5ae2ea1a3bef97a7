"""The consumer groups of a flow: which are translated, their progress, checkpoints, and group offsets on
the target."""
