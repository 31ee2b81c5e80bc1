"""The road from scheduler to executor, and the wake-ups along it."""
