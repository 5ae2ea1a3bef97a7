"""Where values come from: precedence, references to providers, types, rules that change while a flow runs."""
