"""`python -m scaleproof` is the command `scaleproof`."""

from scaleproof.cli import main

if __name__ == "__main__":
    main()
