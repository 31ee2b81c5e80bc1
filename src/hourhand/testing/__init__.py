"""For those who extend Hourhand: what their parts must promise, as checks that any test runner can call."""
