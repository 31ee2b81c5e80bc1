"""Runs jobs, never decides when: receiver, start heap, capacity, attempts, recorder, logs."""
