"""ACLs and quotas: what a binding of the source becomes on the target. Pure."""
