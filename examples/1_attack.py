"""Attack a batch of images with PGD and with SI-PGD.

python examples/1_attack.py
"""

from scaleproof import PGD, Threat, attack_batch, load, load_model, si_pgd


def main() -> None:
    classifier = load_model("demo").classifier
    x, y = load("sample").batch(0, 32)
    threat = Threat(norm="linf", eps=8 / 255)
    right = int((classifier(x).argmax(1) == y).sum())
    print(f"clean: {right} of {len(y)} right")
    for attack in (PGD(threat=threat), si_pgd(threat)):
        found = attack_batch(attack, classifier, x, y, seed=0)
        right = int((classifier(found).argmax(1) == y).sum())
        print(
            f"{attack.label}: {right} of {len(y)} right, largest change {float(threat.size(found - x).max()):.4f}"
        )


if __name__ == "__main__":
    main()
