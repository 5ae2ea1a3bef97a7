"""`twinlog failover` and `twinlog failback`."""
