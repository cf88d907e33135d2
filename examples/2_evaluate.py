"""Evaluate a network of your own with the paper's attacks and see the worst case.

python examples/2_evaluate.py
"""

from torch import Tensor, nn

from scaleproof import Classifier, Threat, evaluate, load, suite


class TinyNet(nn.Module):
    """Stands for your network: any module that maps images in [0, 1] to logits."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits


def main() -> None:
    classifier = Classifier(TinyNet().eval(), mean=(0.49, 0.48, 0.45), std=(0.25, 0.24, 0.26))
    evaluation = evaluate(
        classifier, load("sample").first(100), suite("paper", Threat(eps=8 / 255), restarts=2)
    )
    print(f"clean: {evaluation.clean.accuracy:.1%}, head found: {evaluation.head}")
    for result in evaluation.attacks:
        print(f"{result.label}: at most {evaluation.robust(result.name).accuracy:.1%}")
    low, high = evaluation.robust().interval
    print(f"worst case: at most {evaluation.robust().accuracy:.1%}, 95% interval {low:.1%} to {high:.1%}")


if __name__ == "__main__":
    main()
