"""Shared by all commands: addresses of services, output, tables, failures."""
