"""Spark at the edge: the only importer of pyspark."""
