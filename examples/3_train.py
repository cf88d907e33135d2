"""Train a small network to be robust (TRADES-SI), then attack it.

python examples/3_train.py
"""

import torch

from scaleproof import Classifier, evaluate, load, suite
from scaleproof.defenses import defense, scale_invariant
from scaleproof.models import build
from scaleproof.training import Cyclic, TrainConfig, Trainer


def main() -> None:
    trades_si = scale_invariant(defense("trades"), scale=15, margin=0.2, weight=0.2)
    config = TrainConfig(epochs=2, batch_size=50, rate=0.05, schedule=Cyclic(0.4))
    torch.manual_seed(0)  # the first weights; all else depends on TrainConfig(seed=...)
    classifier = Classifier(build("resnet-small"))  # or a network of your own
    trainer = Trainer(classifier, load("sample-train").first(300), trades_si, config)
    for progress in trainer.run():
        if progress.step == progress.steps and progress.last is not None:
            standing = progress.last["validation"]
            print(
                f"epoch {progress.epoch}: loss {progress.last['loss']:.3f}, held-out PGD {standing['pgd']:.1f}%"
            )
    evaluation = evaluate(classifier.eval(), load("sample").first(100), suite("pgd,si-pgd", steps=5))
    print(f"clean {evaluation.clean.accuracy:.1%}, robust at most {evaluation.robust().accuracy:.1%}")


if __name__ == "__main__":
    main()
