"""Frameworks, each in a file of its own, that use the public names alone."""
