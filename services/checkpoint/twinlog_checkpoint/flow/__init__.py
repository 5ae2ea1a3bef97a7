"""One flow put together: its parts, and the rules that change while it runs."""
