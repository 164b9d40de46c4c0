"""What the pools that are ours say of their own tries: for debugging, since every error reaches its caller (C11).

Else a database that is away writes a line for each try, besides the one a minute of whoever needs it.
"""

from __future__ import annotations

import logging
from typing import Final

POOL_NAME: Final = "tenure"

logger = logging.getLogger("tenure")


class OwnConnection:
    """Mark a connection of a pool of ours."""


def demote(record: logging.LogRecord) -> bool:
    """Let pass what other pools of the application log; say the same of ours at level debug instead."""
    told = record.args if isinstance(record.args, tuple) else ()
    if not any(each == POOL_NAME or isinstance(each, OwnConnection) for each in told):
        return True
    logger.debug(record.msg, *told)
    return False


logging.getLogger("psycopg.pool").addFilter(demote)
