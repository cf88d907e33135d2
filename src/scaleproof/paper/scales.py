"""Scales: how much of an experiment is done, as the paper states it or as a smoke test of the whole path."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What stands in place of an experiment's own network, data and numbers of images; None leaves them."""

    name: str
    words: str
    architecture: str | None = None
    training_data: str | None = None
    test_data: str | None = None
    epochs: int | None = None
    training_images: int | None = None
    test_images: int | None = None
    standard: str = "standard-bf16"  # which suite answers where the paper says AutoAttack
    standard_images: int | None = None
    black_box_images: int | None = 1000
    black_box: str | None = None  # a module with shorter attacks by the same names
    figure_images: int | None = None
    stand_in: str | None = None  # for a model that others published

    def black_box_attack(self, name: str) -> str:
        """What `scaleproof evaluate` is given for SPSA and RayS."""
        return name if self.black_box is None else f"{self.black_box}:{name.replace('-', '_').upper()}"


FULL = Scale(name="full", words="the stated network, data and number of epochs")
SMALL = Scale(
    name="small",
    words="a smoke test: a tiny network, one epoch on 256 packaged images, short black-box attacks; "
    "its numbers mean nothing",
    architecture="resnet-tiny",
    training_data="sample-train",
    test_data="sample",
    epochs=1,
    training_images=256,
    test_images=16,
    standard="apgd-ce,apgd-t",
    standard_images=16,
    black_box_images=8,
    black_box="scaleproof.paper.smoke",
    figure_images=4,
    stand_in="undefended",
)
SCALES = {scale.name: scale for scale in (FULL, SMALL)}


def scale(name: str) -> Scale:
    if name not in SCALES:
        raise ValueError(f"a scale must be one of {', '.join(SCALES)}, got {name!r}")
    return SCALES[name]
