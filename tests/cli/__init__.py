"""The command line, run as real processes against a real PostgreSQL."""
