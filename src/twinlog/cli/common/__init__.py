"""What commands share: where services are, output, tables, failures."""
