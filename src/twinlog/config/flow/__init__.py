"""The settings of one flow for the four services."""
