"""Reads both logs of every partition and hands them to the comparison: in this process, or on Spark."""
