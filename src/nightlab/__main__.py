"""`python -m nightlab`."""

from nightlab.cli.app import main

main()
