"""Segments: what is sealed, when, how it is read and when it is deleted."""
