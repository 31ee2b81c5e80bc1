"""`python -m hourhand.cli` is the `hourhand` command."""

from hourhand.cli.main import main

main()
