"""The screens of fits of several owners: the coordinator's and an owner's."""
