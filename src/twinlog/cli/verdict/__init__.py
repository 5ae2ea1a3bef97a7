"""What the answers of the services mean: one verdict for `twinlog status`, the live page and plans. Pure."""
