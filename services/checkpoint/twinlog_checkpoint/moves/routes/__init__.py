"""The two ways groups move along a flow: from its source to its target, and back."""
