"""What is known of a flow before the first record is compared."""
