"""Auto-PGD step by step in numpy: what the package's trajectories are compared with."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from helpers import LinearNet


def apgd_by_hand(
    net: LinearNet, x: Tensor, y: Tensor, start: Tensor, eps: float, steps: int
) -> list[np.ndarray]:
    """Algorithm 1 of the paper with the published constants, one image at a time, in plain numpy loops."""
    weight, bias = net.head.weight.detach().double().numpy(), net.head.bias.detach().double().numpy()
    paths = []
    for clean, truth, point in zip(
        x.flatten(1).double().numpy(), y.tolist(), start.flatten(1).double().numpy(), strict=True
    ):

        def value(p: np.ndarray, truth: int = truth) -> float:
            scores = weight @ p + bias
            return float(np.log(np.exp(scores - scores[truth]).sum()))

        def slope(p: np.ndarray, truth: int = truth) -> np.ndarray:
            scores = weight @ p + bias
            probability = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
            probability[truth] -= 1
            return probability @ weight

        def project(p: np.ndarray, clean: np.ndarray = clean) -> np.ndarray:
            return np.clip(np.clip(p, clean - eps, clean + eps), 0, 1)

        size, before, path = 2 * eps, point.copy(), []
        best, best_value = point.copy(), value(point)
        checkpoints, gap, at = [], int(0.22 * steps), 0
        while at + gap <= steps:
            at += gap
            checkpoints.append(at)
            gap = max(gap - int(0.03 * steps), int(0.06 * steps))
        values, last_check, last_best, halved = [0.0], 0, best_value, True
        for k in range(steps):
            ahead = project(point + size * np.sign(slope(point)))
            share = 0.75 if k else 1.0
            moved = project(point + share * (ahead - point) + (1 - share) * (point - before))
            before, point = point, moved
            values.append(value(point))
            if values[-1] > best_value:
                best, best_value = point.copy(), values[-1]
            path.append(point.copy())
            if k + 1 in checkpoints:
                window = k + 1 - last_check
                rises = sum(values[j + 1] > values[j] for j in range(last_check, k + 1))
                stuck = not halved and last_best >= best_value
                halved = rises <= 0.75 * window or stuck
                if halved:
                    size, point = size / 2, best.copy()
                last_check, last_best = k + 1, best_value
        paths.append(np.array(path))
    return paths
