"""What follows from a comparison: reports, pages, repairs, what is safe to delete. Pure."""
