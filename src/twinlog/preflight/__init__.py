"""What can be said of a configuration before anything is started: facts of the clusters, judged."""
