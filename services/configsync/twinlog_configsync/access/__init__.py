"""ACLs and quotas: translates those of the source for the target. Pure."""
