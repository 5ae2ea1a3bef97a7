"""Failover and failback: plan, run, record, and the write block on the cluster that is left."""
