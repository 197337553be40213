"""Records at rest: files of records of one size, in the clear or encrypted, larger than memory if
need be.
"""
