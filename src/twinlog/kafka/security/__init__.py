"""Authentication of clients, and the certificates they trust."""
