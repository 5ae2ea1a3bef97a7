"""Values of configsync, and the records they are kept as. No I/O."""
