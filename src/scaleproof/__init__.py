"""scaleproof: measure adversarial robustness honestly."""

__version__ = "0.1.0"
