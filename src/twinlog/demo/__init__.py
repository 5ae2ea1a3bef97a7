"""`twinlog demo`: two real clusters, four services, and a consumer group that moves from one to the other.

`story.py` runs it from beginning to end; the other files are its parts.
"""
