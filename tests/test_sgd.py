"""Our SGD takes the steps of torch.optim's, and starts without torch's compiler."""

import subprocess
import sys

import pytest
import torch
from torch.nn import Parameter

from scaleproof.training.sgd import SGD, fits_kernel

SHAPES = ((8, 3, 3, 3), (10,), (7,))


@pytest.mark.parametrize("momentum", [0.9, 0.0])
@pytest.mark.parametrize(
    ("device", "dtype", "bound"),
    [
        ("cpu", torch.float64, 1e-15),
        ("cpu", torch.float32, 2e-7),
        pytest.param("cuda", torch.float32, 2e-7, marks=pytest.mark.gpu),
    ],
)
def test_steps_are_those_of_torch(device: str, dtype: torch.dtype, bound: float, momentum: float) -> None:
    generator = torch.Generator(device).manual_seed(0)
    kind = {"generator": generator, "dtype": dtype, "device": device}
    theirs = [Parameter(torch.randn(shape, **kind)) for shape in SHAPES]
    ours = [Parameter(parameter.detach().clone()) for parameter in theirs]
    reference = torch.optim.SGD(theirs, lr=0.0, momentum=momentum, weight_decay=0.01)
    optimizer = SGD(ours, momentum=momentum, weight_decay=0.01)
    for step, rate in enumerate((0.1, 0.1, 0.05, 0.0, 0.2)):
        for number, (their, our) in enumerate(zip(theirs, ours, strict=True)):
            gradient = torch.randn(their.shape, **kind)
            absent = (
                number == 2 and step > 1
            )  # a branch that was not taken: neither weight nor momentum moves
            their.grad, our.grad = (None, None) if absent else (gradient.clone(), gradient.clone())
        reference.param_groups[0]["lr"] = rate
        optimizer.rate.fill_(rate)
        reference.step()
        optimizer.step()
    for their, our in zip(theirs, ours, strict=True):
        assert (their - our).abs().max() <= bound * their.abs().max()


def test_two_steps_by_hand() -> None:
    weight = Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = SGD([weight], momentum=0.5, weight_decay=0.1)
    optimizer.rate.fill_(0.2)
    for _ in range(2):
        weight.grad = torch.tensor([2.0], dtype=torch.float64)
        optimizer.step()
    # velocities 2 + .1 * 1 = 2.1, then .5 * 2.1 + 2 + .1 * .58 = 3.108; weights 1 - .42 = .58, then .58 - .6216
    assert float(weight.detach()) == pytest.approx(-0.0416, abs=1e-15)
    optimizer.forget_gradients()
    optimizer.step()
    assert float(weight.detach()) == pytest.approx(-0.0416, abs=1e-15)


def test_gradients_may_lie_otherwise_than_weights() -> None:
    weight = Parameter(torch.arange(24.0).reshape(2, 3, 2, 2).to(memory_format=torch.channels_last))
    before, gradient = (
        weight.detach().clone(),
        torch.randn(2, 3, 2, 2, generator=torch.Generator().manual_seed(0)),
    )
    weight.grad = gradient
    assert weight.stride() != gradient.stride()
    optimizer = SGD([weight], momentum=0.9, weight_decay=0.0)
    optimizer.rate.fill_(0.5)
    optimizer.step()
    assert torch.allclose(weight.detach(), before - 0.5 * gradient, atol=1e-6)


def test_the_kernel_takes_the_same_steps_and_only_what_lies_alike() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = [Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]
    copies = [Parameter(weight.detach().clone()) for weight in weights]
    reference = torch.optim.SGD(copies, lr=0.1, momentum=0.9, weight_decay=0.01)
    ours = SGD(weights, momentum=0.9, weight_decay=0.01)
    ours.rate.fill_(0.1)
    for _ in range(3):
        gradients = [torch.randn(shape, generator=generator) for shape in SHAPES]
        for copy, gradient in zip(copies, gradients, strict=True):
            copy.grad = gradient.clone()
        reference.step()
        with torch.no_grad():
            ours.step_in_one_kernel(list(weights), gradients, ours.momenta)
    for weight, copy in zip(weights, copies, strict=True):
        assert torch.allclose(weight, copy, rtol=0, atol=1e-6)
    image = torch.zeros(2, 3, 2, 2)
    assert fits_kernel([image, image.clone()])
    assert not fits_kernel([image, image.to(memory_format=torch.channels_last)])
    assert not fits_kernel([image, image.double()])


def test_a_network_without_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="must have parameters that require gradients"):
        SGD([], momentum=0.9, weight_decay=0.0)


def test_a_training_does_not_import_the_compiler() -> None:
    program = (
        "import sys\n"
        "from scaleproof import Classifier, load\n"
        "from scaleproof.defenses import defense\n"
        "from scaleproof.models import build\n"
        "from scaleproof.training import TrainConfig, Trainer\n"
        "images = load('sample-train').first(40)\n"
        "config = TrainConfig(batch_size=20, validation=0)\n"
        "next(Trainer(Classifier(build('resnet-small')), images, defense('at'), config).run())\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False"], found.stdout
