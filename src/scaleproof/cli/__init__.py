"""The command line: the only part that prints."""

from scaleproof.cli.main import main

__all__ = ["main"]
