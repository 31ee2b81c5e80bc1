"""What a caller may ask, in the caller's words, authorisation included."""
