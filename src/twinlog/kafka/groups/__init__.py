"""Consumer groups: listing, coordinators, committed offsets, members and elections."""
