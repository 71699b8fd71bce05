"""GLC: its size, its attention, and that every parameter is trained."""

import pytest
import torch

from site_agent.networks.glc import GLC_LAYOUTS, Glc, global_local_attention


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("glc-paper", 70_181_857), ("glc-8", 55_941_601), ("glc-small", 1_993_921),
     ("glc-tiny", 111_505)],
)  # fmt: skip
def test_networks_have_as_many_parameters_as_published(name: str, parameters: int) -> None:
    with torch.device("meta"):
        module = Glc(GLC_LAYOUTS[name])
    assert sum(parameter.numel() for parameter in module.parameters()) == parameters


@pytest.mark.parametrize("name", ["glc-tiny", "glc-small"])
def test_each_parameter_gets_a_gradient(name: str) -> None:
    layout = GLC_LAYOUTS[name]
    torch.manual_seed(1)
    module = Glc(layout)
    maps = module(torch.randn(2, 3, layout.frames, layout.size_px, layout.size_px))
    side = layout.size_px // 4
    assert maps.shape == (2, 1, layout.frames, side, side)
    maps.square().mean().backward()
    without = [key for key, parameter in module.named_parameters() if not parameter.grad.any()]  # type: ignore[union-attr]
    assert not without


@pytest.mark.slow
def test_the_published_size_makes_one_step() -> None:
    torch.manual_seed(1)
    module = Glc(GLC_LAYOUTS["glc-paper"]).eval()  # no block is left out by chance
    maps = module(torch.randn(1, 3, 8, 256, 256))
    assert maps.shape == (1, 1, 8, 64, 64)
    maps.square().mean().backward()
    without = [key for key, parameter in module.named_parameters() if not parameter.grad.any()]  # type: ignore[union-attr]
    assert not without


def dense_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Compute it as published: 1e8 is subtracted off the diagonal and the first column."""
    count = q.shape[2]
    suppressed = torch.full((count, count), 1e8, dtype=q.dtype)
    suppressed.fill_diagonal_(0)
    suppressed[:, 0] = 0
    logits = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    attention: torch.Tensor = (logits - suppressed).softmax(-1) @ v
    return attention


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_two_logits_give_the_dense_masked_attention(dtype: torch.dtype, tolerance: float) -> None:
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, 4, 33, 16, generator=generator, dtype=dtype) for _ in range(3))
    attended = global_local_attention(q, k, v)
    torch.testing.assert_close(attended, dense_attention(q, k, v), rtol=0, atol=tolerance)
    # The global token, which stands first, sees itself only.
    torch.testing.assert_close(attended[:, :, 0], v[:, :, 0])


def test_half_precision_stays_finite() -> None:
    generator = torch.Generator().manual_seed(3)
    q, k, v = (8 * torch.randn(1, 2, 17, 32, generator=generator).half() for _ in range(3))
    assert bool(global_local_attention(q, k, v).isfinite().all())
