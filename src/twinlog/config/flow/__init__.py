"""What one flow sets for its four services."""
