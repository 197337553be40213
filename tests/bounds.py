"""Prints pip's constraints for the oldest packages that pyproject.toml allows: what it declares,
and no newer.

``make test-bounds`` installs them and runs a part of the tests, and does the same with the newest
ones.
"""

import tomllib
from pathlib import Path

# extras that a user installs; the others have tools for tests and documentation
TESTED = ("data", "encryption", "cluster")


def oldest():
    """Requirements such as "jax==0.10" for all packages that users have."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = [
        requirement for extra in TESTED for requirement in project["optional-dependencies"][extra]
    ]
    return [requirement.replace(">=", "==") for requirement in (*project["dependencies"], *extras)]


if __name__ == "__main__":
    print("\n".join(oldest()))
