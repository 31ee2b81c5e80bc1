"""One module per resource. Each lists its endpoints and translates between HTTP and operations, no more."""
