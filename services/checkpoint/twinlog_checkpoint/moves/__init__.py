"""Failover and failback: planning, running and recording them, and the write fence on the cluster that groups
leave."""
