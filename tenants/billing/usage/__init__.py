"""What was used: told once, rated when it comes, added up as it is written."""
