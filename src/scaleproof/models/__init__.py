"""Networks: the architectures, the Classifier around any network, and loading by name."""

from scaleproof.models.answers import answers
from scaleproof.models.architectures import build
from scaleproof.models.classifier import Classifier, as_classifier
from scaleproof.models.output import Output
from scaleproof.models.specs import LoadedModel, load_model, save_model, weights_digest

__all__ = [
    "Classifier",
    "LoadedModel",
    "Output",
    "answers",
    "as_classifier",
    "build",
    "load_model",
    "save_model",
    "weights_digest",
]
