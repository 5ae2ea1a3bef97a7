"""Promises that are tried on one run. A package, so that the run ends with the last of them."""
