"""Every check of the project, one after the other: format, lint, types, tests.

python -m tests.check          what has to pass before a change goes in
python -m tests.check --slow   the slow tests too: real models from the package registry, trials, full installs
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAST = ["-m", "not slow"]


def main(arguments: list[str]) -> int:
    """Run all checks even after one fails; returns 0, or 1 when any failed."""
    if unknown := set(arguments) - {"--slow"}:
        print(f"expected no argument or --slow, found {' '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    steps = {
        "format": ["ruff", "format", "--check", "--quiet", "."],
        "lint": ["ruff", "check", "--quiet", "."],
        "types": ["mypy", "--no-error-summary"],
        "tests": ["pytest", *([] if arguments else FAST)],
    }
    failed = [name for name, command in steps.items() if not _passes(name, command)]
    if failed:
        print(f"\nfailed: {', '.join(failed)}", flush=True)
    return 1 if failed else 0


def _passes(name: str, command: list[str]) -> bool:
    print(f"== {name}: {' '.join(command)}", flush=True)
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode == 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
