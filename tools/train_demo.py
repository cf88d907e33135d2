"""Adversarial training (PGD-10) in one simple loop on one GPU: made the embedded demo network.

    PYTHONPATH=src python tools/train_demo.py --data DATA.pt --architecture resnet-small --epochs 60 --out OUT

DATA.pt holds uint8 tensors train_images, train_labels, test_images, test_labels (images NCHW). The attack and the
training step are captured as CUDA graphs; gradients are in bf16 (autocast), the evaluation at the end in float32.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaleproof.models.preact import preact_resnet18
from scaleproof.models.resnet import resnet18, resnet_small

EPS, STEP, STEPS = 8 / 255, 2 / 255, 10
BUILD = {"resnet-small": resnet_small, "resnet18": resnet18, "preact-resnet18": preact_resnet18}


def perturb(net: nn.Module, x: Tensor, y: Tensor, start: Tensor, steps: int) -> Tensor:
    delta = start
    for _ in range(steps):
        delta = delta.detach().requires_grad_()
        with torch.autocast("cuda", torch.bfloat16):
            logits = net((x + delta).contiguous(memory_format=torch.channels_last))
        loss = F.cross_entropy(logits.float(), y, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, delta)
        delta = (delta + STEP * gradient.sign()).clamp(-EPS, EPS)
        delta = (x + delta).clamp(0, 1) - x
    return delta.detach()


def augment(images: Tensor) -> Tensor:
    """Random crop of 32 from 4 zero pixels of padding and random flip, as one gather."""
    count, device = len(images), images.device
    padded = F.pad(images, (4, 4, 4, 4))
    top = torch.randint(0, 9, (count, 1), device=device)
    left = torch.randint(0, 9, (count, 1), device=device)
    grid = torch.arange(32, device=device)
    flipped = torch.where(torch.rand(count, 1, device=device) < 0.5, 31 - grid, grid)
    rows, columns = (top + grid)[:, None, :, None], (left + flipped)[:, None, None, :]
    sample, channel = (
        torch.arange(count, device=device)[:, None, None, None],
        torch.arange(3, device=device)[None, :, None, None],
    )
    return padded[sample, channel, rows, columns]


class Trainer:
    """Static buffers and two captured graphs: the attack in eval mode, the training step in train mode."""

    def __init__(self, net: nn.Module, batch: int, decay: float, adversarial: bool = True) -> None:
        self.net = net
        self.x = torch.rand(batch, 3, 32, 32, device="cuda")
        self.y = torch.zeros(batch, dtype=torch.long, device="cuda")
        self.start = torch.zeros_like(self.x)
        self.delta = torch.zeros_like(self.x)
        self.rate = torch.tensor(0.1, device="cuda")
        self.loss = torch.zeros((), device="cuda")
        self.optimizer = torch.optim.SGD(
            net.parameters(), lr=self.rate, momentum=0.9, weight_decay=decay, fused=True
        )
        saved = {k: v.clone() for k, v in net.state_dict().items()}
        self.rate.zero_()
        self.attack_graph = self.capture(self.attack)
        self.step_graph = self.capture(self.step)
        net.load_state_dict(saved)
        for state in self.optimizer.state.values():
            state["momentum_buffer"].zero_()

    def capture(self, function) -> torch.cuda.CUDAGraph:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                function()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            function()
        return graph

    def attack(self) -> None:
        self.net.eval()
        self.delta.copy_(perturb(self.net, self.x, self.y, self.start, STEPS))

    def step(self) -> None:
        self.net.train()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            logits = self.net((self.x + self.delta).contiguous(memory_format=torch.channels_last))
        loss = F.cross_entropy(logits.float(), self.y)
        loss.backward()
        self.optimizer.step()
        self.loss.copy_(loss.detach())

    def run(self, x: Tensor, y: Tensor, rate: float) -> None:
        self.x.copy_(x)
        self.y.copy_(y)
        self.start.uniform_(-EPS, EPS)
        self.start.copy_((self.x + self.start).clamp(0, 1) - self.x)
        self.rate.fill_(rate)
        self.attack_graph.replay()
        self.step_graph.replay()


def rate_at(progress: float, peak: float) -> float:
    """A short linear warm-up, then a straight line to zero."""
    return peak * min(progress / 0.1, (1 - progress) / 0.9)


@torch.no_grad()
def accuracy(net: nn.Module, images: Tensor, labels: Tensor, steps: int) -> float:
    net.eval()
    right = 0
    for x, y in zip(images.split(1000), labels.split(1000), strict=True):
        x = x.float() / 255
        if steps:
            with torch.enable_grad():
                start = torch.empty_like(x).uniform_(-EPS, EPS)
                x = (x + perturb(net, x, y, (x + start).clamp(0, 1) - x, steps)).clamp(0, 1)
        right += int((net(x).argmax(1) == y).sum())
    return 100 * right / len(labels)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--architecture", default="resnet-small", choices=sorted(BUILD))
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--decay", type=float, default=5e-4)
    parser.add_argument("--average", type=float, default=0.999)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def write(
    given: argparse.Namespace, net: nn.Module, mean: dict[str, Tensor], data: dict[str, Tensor], log: list
) -> None:
    """Last and averaged weights, each judged on all test images, and the log."""
    final = {
        "architecture": given.architecture,
        "log": log,
        "settings": {k: str(v) for k, v in vars(given).items() if k not in ("out", "data")},
    }
    for name, state in (("last", net.state_dict()), ("average", mean)):
        net.load_state_dict(state)
        half = {k: v.half() if v.is_floating_point() else v for k, v in net.state_dict().items()}
        net.load_state_dict(half)
        final[name] = {
            "clean": accuracy(net, data["test_images"], data["test_labels"], 0),
            "pgd20": accuracy(net, data["test_images"], data["test_labels"], 20),
        }
        print(name, final[name], flush=True)
        given.out.mkdir(parents=True, exist_ok=True)
        torch.save(
            {k: v.cpu().contiguous() for k, v in half.items()}, given.out / f"{given.architecture}-{name}.pt"
        )
    (given.out / f"{given.architecture}-training.json").write_text(json.dumps(final, indent=1))


def main() -> None:
    given = arguments()
    torch.manual_seed(given.seed)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    data = {name: tensor.cuda() for name, tensor in torch.load(given.data, weights_only=True).items()}
    net = BUILD[given.architecture]().cuda().to(memory_format=torch.channels_last)
    mean = {k: v.clone() for k, v in net.state_dict().items()}
    trainer = Trainer(net, given.batch, given.decay)
    per_epoch = len(data["train_labels"]) // given.batch
    began, log = time.time(), []
    for epoch in range(given.epochs):
        order = torch.randperm(len(data["train_labels"]), device="cuda")
        for number, rows in enumerate(order[: per_epoch * given.batch].split(given.batch)):
            progress = (epoch + number / per_epoch) / given.epochs
            x = augment(data["train_images"][rows]).float() / 255
            trainer.run(x, data["train_labels"][rows], rate_at(progress, given.rate))
            torch._foreach_lerp_(
                [v for v in mean.values() if v.is_floating_point()],
                [v for v in net.state_dict().values() if v.is_floating_point()],
                1 - min(given.average, (epoch * per_epoch + number + 1) / (epoch * per_epoch + number + 10)),
            )
        if epoch % 5 == 4 or epoch == given.epochs - 1:
            robust = accuracy(net, data["test_images"][:1000], data["test_labels"][:1000], 10)
            log.append(
                {
                    "epoch": epoch + 1,
                    "loss": float(trainer.loss),
                    "pgd10_first_1000": robust,
                    "seconds": time.time() - began,
                }
            )
            print(json.dumps(log[-1]), flush=True)
    write(given, net, mean, data, log)


if __name__ == "__main__":
    main()
