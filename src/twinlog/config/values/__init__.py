"""Where values come from: precedence, references to providers, types, rules that can change while a flow
runs."""
