"""Where an offset of one log lies in the other: offset syncs, alignment of the two logs, and MM2's rule."""
