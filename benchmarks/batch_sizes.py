"""Do verdicts depend on the batch size? The demo network, 500 images, batch sizes 1, 7 and 500.

    python benchmarks/batch_sizes.py [--images 500] [--precision auto]

Random numbers are the same by construction; what may differ is how sums round. Every disagreement is listed with its
margins (best other logit minus true logit: positive when broken).
"""

from __future__ import annotations

import argparse

import numpy as np

from scaleproof import Speed, evaluate, load, load_model, suite

SIZES = (500, 7, 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--attacks", default="pgd,si-pgd")
    parser.add_argument("--precision", default="auto")
    given = parser.parse_args()
    model, images = load_model("demo").classifier, load("sample").first(given.images)
    speed, attacks = Speed(precision=given.precision), suite(given.attacks)
    runs = {size: evaluate(model, images, attacks, batch_size=size, speed=speed) for size in SIZES}
    for number, attack in enumerate(attacks):
        first, *others = (runs[size].attacks[number] for size in SIZES)
        for size, other in zip(SIZES[1:], others, strict=True):
            differ = np.flatnonzero(first.broken() != other.broken())
            share = 100 * (1 - len(differ) / given.images)
            print(f"{attack.label}, batch {size} against {SIZES[0]}: {share:.2f}% agree")
            for row in differ:
                margins = [float(result.verdicts["margin"][0, row]) for result in (first, other)]
                print(f"  image {row}: margins {margins[0]:+.5f} and {margins[1]:+.5f}")


if __name__ == "__main__":
    main()
