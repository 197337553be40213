"""``workbench`` in the shell, and ``python -m workbench``: Ctrl-C is taken care of before anything
else is imported.
"""

import sys

from workbench import _interrupt

__all__ = ["main"]


def main() -> int:
    """Run the command line and return its exit code."""
    _interrupt.leave_at_once()
    from workbench.cli import main as cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
