"""`twinlog verify`, `repair` and `safe-to-delete`: prove copies, and act on the result."""
