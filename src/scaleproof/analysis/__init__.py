"""Analysis of a model beyond one number: the logit-scale sweep, loss surfaces, cosines, accuracy curves, classes."""

from scaleproof.analysis.classes import Classes, ClassPlan, class_robustness, classes_of_verdicts, confusion
from scaleproof.analysis.cosines import CosinePlan, Cosines, cosine_histograms, histogram
from scaleproof.analysis.curves import (
    EpsCurve,
    EpsPlan,
    StepCurve,
    StepPlan,
    accuracy_by_eps,
    accuracy_by_steps,
)
from scaleproof.analysis.run import PARTS, Analysis, Plan, analyse
from scaleproof.analysis.subject import Subject
from scaleproof.analysis.surfaces import SurfacePlan, Surfaces, example_surfaces
from scaleproof.analysis.sweep import (
    ALPHAS,
    Sweep,
    SweepRow,
    checked_alphas,
    scale_sweep,
    sweepable,
)
from scaleproof.analysis.weights import (
    WeightPlan,
    WeightSurface,
    filter_normalised_direction,
    moved,
    weight_surface,
)

__all__ = [
    "ALPHAS",
    "PARTS",
    "Analysis",
    "ClassPlan",
    "Classes",
    "CosinePlan",
    "Cosines",
    "EpsCurve",
    "EpsPlan",
    "Plan",
    "StepCurve",
    "StepPlan",
    "Subject",
    "SurfacePlan",
    "Surfaces",
    "Sweep",
    "SweepRow",
    "WeightPlan",
    "WeightSurface",
    "accuracy_by_eps",
    "accuracy_by_steps",
    "analyse",
    "checked_alphas",
    "class_robustness",
    "classes_of_verdicts",
    "confusion",
    "cosine_histograms",
    "example_surfaces",
    "filter_normalised_direction",
    "histogram",
    "moved",
    "scale_sweep",
    "sweepable",
    "weight_surface",
]
