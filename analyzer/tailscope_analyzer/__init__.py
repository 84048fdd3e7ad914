"""Placeholder while packages are laid out."""
