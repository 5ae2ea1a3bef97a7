"""The parts of one flow, and the rules that can change while it runs."""
