"""A NumPyro model and its guide, read record by record, so that the gradient of every record can be
clipped.
"""
