"""Where an offset of one log lies in the other: offset syncs, the comparison of both logs, and MM2's rule."""
