"""Run a real PostgreSQL for demo, development and tests, with nothing to set up.

``EmbeddedPostgres.start()`` gives a server that ends with the process that started it, however that process
ends. ``share()`` gives a kept server that several processes use at once, stopped after the last of them.

A server lives in one folder of its own::

    cluster/          PostgreSQL's data
    password          of the user postgres, mode 0600
    server.log        what PostgreSQL says
    supervisor.lock   held by the process that is the parent of PostgreSQL
    in-use.lock       shared by the users of a shared server, held alone for an owned one
    start.lock        held while a shared server is started

PostgreSQL refuses to run as root. For root it is run as ``postgres`` or ``nobody``; no account is created and
the mode of a folder that was there is not changed. It listens on 127.0.0.1 only, and asks for the password.
"""

from tenure.embedded.choice import default_data_directory
from tenure.embedded.programs import Binaries, binaries, find_binaries
from tenure.embedded.server import EmbeddedPostgres
from tenure.embedded.sharing import SharedPostgres, share

__all__ = [
    "Binaries",
    "EmbeddedPostgres",
    "SharedPostgres",
    "binaries",
    "default_data_directory",
    "find_binaries",
    "share",
]
