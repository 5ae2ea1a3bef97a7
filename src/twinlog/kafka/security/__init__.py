"""How a client proves itself and whom it trusts."""
