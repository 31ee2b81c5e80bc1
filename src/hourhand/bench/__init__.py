"""Measures a cluster from outside: knows the REST API and what witnesses wrote; of a temporary one its processes."""
