"""`twinlog verify`, `repair` and `safe-to-delete`: proofs of copies, and what follows from them."""
