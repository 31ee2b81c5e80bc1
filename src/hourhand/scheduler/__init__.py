"""Decides when, never runs a job: membership, leadership, planning, reaping, pruning."""
