"""`twinlog demo`: two real clusters, four services, and a consumer group that moves from one to the other.

`story.py` tells it from the beginning to the end; the other files are its parts.
"""
