"""What the driver knows of each partition: its row, rates, lag, state, and the slot that copies it. Pure."""
