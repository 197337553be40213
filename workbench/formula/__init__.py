"""Regressions from a formula: families of responses, and what a formula means for
declared columns.
"""
