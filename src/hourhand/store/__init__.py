"""The truth in PostgreSQL: one module per noun, its statements in sql/<noun>.sql."""
