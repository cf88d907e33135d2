"""Attacks, one paper per file, each a frozen description driven by the loop in `loop.py`."""

from scaleproof.attacks.base import Attack, State
from scaleproof.attacks.loop import attack_batch, perturb
from scaleproof.attacks.pgd import PGD, fgsm, si_pgd
from scaleproof.attacks.suites import suite

__all__ = ["PGD", "Attack", "State", "attack_batch", "fgsm", "perturb", "si_pgd", "suite"]
