"""The values of configsync, and the records that store them. No I/O."""
