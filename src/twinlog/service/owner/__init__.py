"""Which process of a service works at a flow, and what the others do meanwhile."""
