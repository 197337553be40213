"""The workbench screen: its panels, the session behind it, and what they say."""
