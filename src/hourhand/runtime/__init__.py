"""asyncio plumbing that knows no job: loops, the clock, identifiers, stopping."""
