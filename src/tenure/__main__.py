"""Be the command `tenure`, or say what to install for it."""

from __future__ import annotations

import gc
import sys
from importlib.util import find_spec

_NEEDED = ("click", "rich")


def main() -> int:
    """Run the command line and give its exit code; no traceback for what a user can mend (C11)."""
    try:
        if missing := [name for name in _NEEDED if find_spec(name) is None]:
            print(
                f"tenure: The command line needs {' and '.join(missing)}. Install it: pip install 'tenure[cli]'",
                file=sys.stderr,
            )
            return 1
        from tenure import cli

        return cli.main(sys.argv[1:])
    except KeyboardInterrupt:
        return 130
    finally:
        gc.freeze()  # or the interpreter looks for cycles among all modules at its end: 35 ms of 240


if __name__ == "__main__":
    sys.exit(main())
