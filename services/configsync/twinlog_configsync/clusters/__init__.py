"""Everything that reads or changes a cluster."""
