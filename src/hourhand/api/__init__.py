"""REST: what a caller sends becomes an operation, what comes out becomes JSON. Decides nothing about jobs."""
