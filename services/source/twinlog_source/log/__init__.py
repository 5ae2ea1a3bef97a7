"""What the flow keeps on the target: positions, facts beside them, the gap ledger, and transactions that
hang."""
