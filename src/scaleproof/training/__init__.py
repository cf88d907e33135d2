"""Training: recipes, the loop, checkpoints."""

from scaleproof.training.config import TrainConfig
from scaleproof.training.recipes import RECIPES, Recipe, recipe
from scaleproof.training.schedule import Cosine, Cyclic, Steps
from scaleproof.training.trainer import Progress, Trainer

__all__ = ["RECIPES", "Cosine", "Cyclic", "Progress", "Recipe", "Steps", "TrainConfig", "Trainer", "recipe"]
