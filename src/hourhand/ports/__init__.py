"""Needs. One small protocol per need, each method with what its caller may rely on."""
