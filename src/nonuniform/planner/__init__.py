"""What to buy and what to reserve, for the jobs and the cluster that someone has."""
