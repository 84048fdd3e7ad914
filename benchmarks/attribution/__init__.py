"""How right the analyzer is, measured on data whose truth is known."""
