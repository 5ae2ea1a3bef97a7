"""The flow's data on the target: positions, facts, the gap ledger; and its hanging transactions."""
