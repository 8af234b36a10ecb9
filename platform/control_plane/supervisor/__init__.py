"""`manage.py up`: the whole platform on one machine, as separate processes that are restarted when they die."""
