"""The `tally` command: one module per family of verbs, imported only when one of its verbs is used."""

from tally.cli.app import main

__all__ = ["main"]
