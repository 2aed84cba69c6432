"""`python -m memagent` is the `memagent` command."""

from memagent.cli import main

main()
