"""Commands about topics, configuration and access: plan, apply, rules, acls, explain."""
