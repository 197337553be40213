"""Metrics of a fit or of its predictions, with their label."""

from __future__ import annotations

__all__ = ["Scores"]


class Scores(dict[str, float]):
    """Metrics by name. ``label`` is "public data" or "outside the guarantee"."""

    def __init__(self, scores: dict[str, float], label: str) -> None:
        super().__init__(scores)
        self.label = label

    def __repr__(self) -> str:
        return f"{dict(self)} ({self.label})"
