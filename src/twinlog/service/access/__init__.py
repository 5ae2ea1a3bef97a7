"""Who may call a service: TLS files, tokens, roles, and the one gate that every call passes."""
