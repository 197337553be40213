"""The `workbench` command: one module for each command or group of commands."""
