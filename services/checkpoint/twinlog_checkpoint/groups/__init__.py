"""The consumer groups of a flow: which are translated, their progress, checkpoints, and their offsets on the
target."""
