"""Administration of a cluster: topics, configs, ACLs, quotas, and what a client may do."""
