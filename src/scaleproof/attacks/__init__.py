"""Attacks, one paper per file, each a frozen description driven by the loop in `loop.py`."""

from scaleproof.attacks.adapters import foolbox_attack, named_attack, torchattacks_attack
from scaleproof.attacks.apgd import APGD
from scaleproof.attacks.base import Attack, State
from scaleproof.attacks.batch import attack_batch
from scaleproof.attacks.fab import FAB
from scaleproof.attacks.foreign import Foreign
from scaleproof.attacks.loop import perturb
from scaleproof.attacks.pgd import PGD, fgsm, si_pgd
from scaleproof.attacks.rankings import Ranking, Scouts, Slopes
from scaleproof.attacks.rays import RayS
from scaleproof.attacks.sampled import Nearest, Sampled
from scaleproof.attacks.scouting import Scouting
from scaleproof.attacks.spsa import SPSA
from scaleproof.attacks.square import Square
from scaleproof.attacks.suites import preset, suite

__all__ = [
    "APGD",
    "FAB",
    "PGD",
    "SPSA",
    "Attack",
    "Foreign",
    "Nearest",
    "Ranking",
    "RayS",
    "Sampled",
    "Scouting",
    "Scouts",
    "Slopes",
    "Square",
    "State",
    "attack_batch",
    "fgsm",
    "foolbox_attack",
    "named_attack",
    "perturb",
    "preset",
    "si_pgd",
    "suite",
    "torchattacks_attack",
]
