"""Measure what tenure costs, beside the bare driver and pgbench, on a server with durability as PostgreSQL ships it."""
