"""Administration of a cluster: topics, configs, ACLs, quotas, and the rights of a client."""
