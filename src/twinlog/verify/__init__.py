"""Whether a copy equals its source: decided from the batches of both logs. Pure: no I/O, no clock.

    comparison = Comparison(bounds=bounds)
    yield from comparison.compare()           # generators: they yield what they want to read
    proof = yield from judge(comparison)      # PartitionProof: what was compared, each difference, what not

twinlog_source.verify answers them (Read -> Chunk, Extend -> Extended) from brokers, tests from memory.

The parts:
    model        Kind, Reason, Difference, NotCompared, Bounds, PartitionProof
    comparing    Comparison: the pass over both logs, which finds hunks
    judge        judge: what each hunk is
    report       document, verdict: the report of a flow
"""
