"""What can be run: one module per kind, found by name in the registry."""
