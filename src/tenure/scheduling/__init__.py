"""Ticks that run once, and that somebody finishes (C10)."""
