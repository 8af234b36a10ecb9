"""What a job would use and cost, before it is submitted."""
