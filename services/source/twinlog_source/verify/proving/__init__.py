"""Reads both logs of every partition and passes them to the comparison, in this process or on Spark."""
