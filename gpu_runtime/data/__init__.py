"""Demonstrations: read, validate, summarise, sample, normalise, record. No torch."""
