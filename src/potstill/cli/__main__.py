"""``python -m potstill.cli``."""

from potstill.cli import main

main()
