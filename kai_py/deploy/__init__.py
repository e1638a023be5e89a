"""What has to be in a cluster for the scheduler to run in it."""
