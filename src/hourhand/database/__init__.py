"""PostgreSQL plumbing that knows no job: embedded server, connections, named queries, migrations."""
