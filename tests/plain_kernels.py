"""What the Triton kernels of `scaleproof.speed` compute, in plain torch."""

import torch
import torch.nn.functional as F
from torch import Tensor


def stem_rows(weight: Tensor) -> Tensor:
    return weight


def stem_forward(x: Tensor, rows: Tensor, bias: Tensor) -> Tensor:
    out = F.relu(F.conv2d(x.to(rows.dtype), rows, bias, padding=1))
    return out.contiguous(memory_format=torch.channels_last)


def stem_sums(x: Tensor, rows: Tensor) -> Tensor:
    return F.conv2d(x.to(rows.dtype), rows, padding=1).contiguous(memory_format=torch.channels_last)


def pair_relu(sums: Tensor, bias: Tensor, shortcut: Tensor | None, difference: float) -> Tensor:
    exact = torch.float64
    in_memory(sums, shortcut)
    middle, slope = (sums if shortcut is None else sums.to(exact) + shortcut).to(exact).chunk(2)
    ahead, behind = (
        F.relu(middle + bias.to(exact)[:, None, None] + side * difference * slope) for side in (1, -1)
    )
    return torch.cat([(ahead + behind) / 2, (ahead - behind) / (2 * difference)]).to(sums.dtype)


def add_and_mask(main: Tensor, shortcut: Tensor, activation: Tensor) -> Tensor:
    total = main.float()
    step = 1 if shortcut.shape == main.shape else 2
    total[:, :, ::step, ::step] += shortcut.float()
    return (total * (activation > 0)).to(main.dtype)


def stem_backward(main: Tensor, shortcut: Tensor, activation: Tensor, rows: Tensor) -> Tensor:
    flow = add_and_mask(main, shortcut, activation).float()
    shape = (len(main), 3, *main.shape[2:])
    return torch.nn.grad.conv2d_input(shape, rows.float(), flow, padding=1)


def stem_transposed(flow: Tensor, rows: Tensor) -> Tensor:
    in_memory(flow)
    return torch.nn.grad.conv2d_input((len(flow), 3, *flow.shape[2:]), rows.float(), flow.float(), padding=1)


def activated(sums: Tensor, beside: Tensor | None, scale: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    in_memory(sums, beside)
    total = sums.float() if beside is None else sums.float() + beside.float()
    result = F.relu(total * spread(scale) + spread(bias))
    return (sums if beside is None else total.to(sums.dtype)), result.to(sums.dtype)


def through_activation(
    main: Tensor, other: Tensor | None, activation: Tensor, scale: Tensor, *, beside: bool
) -> Tensor:
    in_memory(main, other, activation)
    more = torch.zeros_like(main, dtype=torch.float32)
    if other is not None:
        step = 1 if other.shape == main.shape else 2
        more[:, :, ::step, ::step] += other.float()
    flow = main.float() if beside else main.float() + more
    flow = flow * spread(scale) * (activation > 0)
    return (flow + more if beside else flow).to(main.dtype)


def in_memory(*tensors: Tensor | None) -> None:
    for tensor in tensors:
        lies = tensor is None or tensor.is_contiguous(memory_format=torch.channels_last)
        assert lies, "the kernels read memory as it lies: channels last"


def spread(channels: Tensor) -> Tensor:
    return channels[:, None, None]


def moments(
    x: Tensor, running_mean: Tensor, running_var: Tensor, momentum: float, eps: float, track: bool
) -> Tensor:
    mean, variance = x.float().mean((0, 2, 3)), x.float().var((0, 2, 3), unbiased=False)
    rows = x.numel() // x.shape[1]
    if track:
        running_mean.mul_(1 - momentum).add_(momentum * mean)
        running_var.mul_(1 - momentum).add_(momentum * variance * rows / (rows - 1))
    return torch.stack([mean, (variance + eps).rsqrt()])


def normalised(
    x: Tensor, residual: Tensor | None, found: Tensor, weight: Tensor, bias: Tensor, relu: bool
) -> Tensor:
    value = (x.float() - spread(found[0])) * spread(found[1] * weight) + spread(bias)
    if residual is not None:
        value = value + residual.float()
    return (F.relu(value) if relu else value).to(x.dtype)


def backward(
    gradient: Tensor, x: Tensor, y: Tensor, found: Tensor, weight: Tensor, relu: bool, joins: bool
) -> tuple[Tensor, Tensor, Tensor]:
    flow = gradient.float() * (y > 0) if relu else gradient.float()
    value = (x.float() - spread(found[0])) * spread(found[1])
    sums = torch.stack([(flow * value).sum((0, 2, 3)), flow.sum((0, 2, 3))])
    rows = x.numel() // x.shape[1]
    moved = spread(weight * found[1]) * (flow - (spread(sums[1]) + value * spread(sums[0])) / rows)
    return moved.to(x.dtype), flow.to(x.dtype), sums


def second_backward(
    flow: Tensor,
    other: Tensor | None,
    gradient: Tensor,
    x: Tensor,
    y: Tensor,
    found: Tensor,
    weight: Tensor,
    relu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """By autograd through F.batch_norm."""
    with torch.enable_grad():
        point, scale = x.float().detach().requires_grad_(), weight.detach().requires_grad_()
        arriving = gradient.float().detach().requires_grad_()
        behind = arriving * (y > 0) if relu else arriving * 1
        normed = F.batch_norm(point, None, None, scale, None, True, 0.0, 1e-5)
        (first,) = torch.autograd.grad(normed, point, behind, create_graph=True)
        value = (first * flow.float()).sum()
        if other is not None:
            value = value + (behind * other.float()).sum()
        to_gradient, to_x, to_weight = torch.autograd.grad(value, [arriving, point, scale])
    return to_gradient.to(x.dtype), to_x.to(x.dtype), to_weight
