"""Access control of a service: TLS files, tokens, roles, and the gate that every call passes."""
