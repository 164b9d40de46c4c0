"""Nodes as a page shows them."""

from __future__ import annotations

from datetime import timedelta

from tenure.durations import format_duration
from tenure.operating import Overview
from tenure.scheduling.values import NodeRecord


def living(seen: Overview) -> int:
    """Count the nodes that were heard of recently enough."""
    return sum(seen.is_alive(node) for node in seen.nodes)


def clock_words(offset: timedelta | None) -> str:
    """Say how a node's wall clock stands to the database's; nothing depends on it."""
    if offset is None:
        return "not known"
    if abs(offset) < timedelta(milliseconds=100):
        return "in step"
    return f"{format_duration(offset)} {'ahead' if offset > timedelta(0) else 'behind'}"


def disagrees(seen: Overview, code: str, node: NodeRecord) -> bool:
    """Say whether a node was started with another schedule of a job than the one that rules."""
    ruling = next((job.job.fingerprint for job in seen.jobs if job.code == code and job.job), None)
    return ruling is not None and node.jobs.get(code) != ruling
