"""What monitoring reads: requests as this deployment's processes counted them, and gauges read from the database."""
