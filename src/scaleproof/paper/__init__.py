"""The paper (arXiv 2201.12527) as data: its numbers, figures and sentences, and the experiments behind them."""

from scaleproof.paper.claims import Claim, Column, Note, Row, Table, claim, claims, find, tables
from scaleproof.paper.figures import Figure, figure, figures
from scaleproof.paper.judge import Comparison, Judgement, Measured, judge, printed
from scaleproof.paper.prose import ProseClaim, Quantity, prose, quantities
from scaleproof.paper.settings import Experiment, experiments

__all__ = [
    "Claim",
    "Column",
    "Comparison",
    "Experiment",
    "Figure",
    "Judgement",
    "Measured",
    "Note",
    "ProseClaim",
    "Quantity",
    "Row",
    "Table",
    "claim",
    "claims",
    "experiments",
    "figure",
    "figures",
    "find",
    "judge",
    "printed",
    "prose",
    "quantities",
    "tables",
]
