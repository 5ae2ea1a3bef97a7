"""Decides what each hunk of a comparison is: a kind of difference, explained, or not compared."""
