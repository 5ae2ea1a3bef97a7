"""`twinlog ui`: a live page of all flows. It reads, and changes nothing."""
