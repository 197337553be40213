"""The `workbench` command: one module for each command or family of commands."""
