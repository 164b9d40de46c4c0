"""What `import tenure` adds to Python's own start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial

from bench.measure import Line, Sample, interleaved
from bench.scene import Scene

REACH_MS = 60.0


def run(scene: Scene) -> list[Line]:
    """Start Python with and without the import, in turn."""
    cases = {"python": partial(_start, "pass"), "tenure": partial(_start, "import tenure")}
    for case in cases.values():
        case()
    found = interleaved(cases, scene.effort.starts)
    python_ms, tenure_ms = found["python"].wall_us / 1e3, found["tenure"].wall_us / 1e3
    return [
        Line(
            "import tenure",
            f"{tenure_ms:.0f} ms",
            f"python's own start {python_ms:.0f} ms",
            tenure_ms / python_ms,
            f"≤ {REACH_MS:.0f} ms more",
            tenure_ms - python_ms <= REACH_MS,
            details={"more_ms": tenure_ms - python_ms},
        )
    ]


def _start(code: str) -> Sample:
    began_s = time.perf_counter()
    # an installed package has its bytecode, whatever the one who measures keeps of his own
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return Sample((time.perf_counter() - began_s) * 1e6)
