"""Records that Spark changes on the way: between the task that copies them and the plan of a Spark job."""
