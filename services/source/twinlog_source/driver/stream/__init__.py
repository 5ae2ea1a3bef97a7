"""The driver's end of the streams to its tasks."""
