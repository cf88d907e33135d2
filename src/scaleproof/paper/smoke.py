"""The black-box attacks of a smoke test: as published but for their length, which their labels say."""

from __future__ import annotations

from fractions import Fraction

from scaleproof.attacks.rays import RayS
from scaleproof.attacks.spsa import SPSA
from scaleproof.paper.settings import EPS
from scaleproof.threat import Threat

STEPS = 20  # of SPSA, in place of 100
QUERIES = 1000  # of RayS, in place of 10,000


def short_spsa(samples: int) -> SPSA:
    return SPSA(
        threat=Threat(eps=float(Fraction(EPS))),
        steps=STEPS,
        samples=samples,
        name=f"spsa-{samples}",
        label=f"SPSA-{samples} ({STEPS} steps)",
    )


SPSA_128, SPSA_256, SPSA_512 = (short_spsa(samples) for samples in (128, 256, 512))
RAYS = RayS(threat=Threat(eps=1.0), steps=QUERIES, label=f"RayS ({QUERIES} queries)")
