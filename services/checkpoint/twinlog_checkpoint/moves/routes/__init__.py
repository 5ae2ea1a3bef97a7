"""The two directions in which groups move along a flow: from its source to its target, and back."""
