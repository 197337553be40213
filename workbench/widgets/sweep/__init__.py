"""The sweep screen: its panels and the session behind it."""
