"""Frames in pairs, and the features that draw each patch."""

import numpy as np
import pytest
import torch
from torch import nn

from site_agent.datasets.gaze.records import both_eyes, join_samples
from site_agent.networks.gaze_modules import EYE_SIZE, GAZE_SIZE, CrossEncoder
from site_agent.networks.modules import new_network, to_module
from site_agent.training.cross_encoder.loop import frames_of, pair_frames, pairs_loss, to_tensors
from tests.site_agent.datasets.gaze.made import samples_of


def test_frames_without_both_eyes_are_left_out_whatever_the_order() -> None:
    samples = samples_of(count=24)
    kept = np.delete(np.arange(24), [3, 10])
    shuffled = samples[np.random.default_rng(0).permutation(kept)]
    pairs = both_eyes(shuffled)
    assert len(pairs) == 20
    assert pairs.eye.tolist() == ["left", "right"] * 10
    for name in ("person", "session", "frame"):
        values = getattr(pairs, name)
        np.testing.assert_array_equal(values[0::2], values[1::2])
    assert not {1, 5} & set(pairs.frame.tolist())
    assert len(both_eyes(samples[::2])) == 0


def test_right_eyes_are_turned_back_to_how_the_camera_saw_them() -> None:
    samples = samples_of(count=4)
    tensors = to_tensors(samples)
    left, right = both_eyes(samples)[0::2], both_eyes(samples)[1::2]
    assert len(tensors) == 4
    assert tensors.patches.shape == (4, 1, 36, 60)
    for place, patch in enumerate([*left.patches, *right.patches[:, :, ::-1]]):
        scaled = (patch - patch.mean()) / patch.std()
        np.testing.assert_allclose(tensors.patches[place, 0].numpy(), scaled, atol=1e-4)


def test_each_frame_is_in_one_pair_of_its_session() -> None:
    samples = join_samples([samples_of("a", 26, 1), samples_of("b", 20, 2)])
    session = to_tensors(samples).session
    pairs = pair_frames(session, torch.Generator().manual_seed(3))
    assert torch.equal(session[pairs[:, 0]], session[pairs[:, 1]])
    used = pairs.flatten().tolist()
    assert len(set(used)) == len(used)
    counts = torch.bincount(session)
    assert len(used) == int((counts - counts % 2).sum())
    again = pair_frames(session, torch.Generator().manual_seed(3))
    assert torch.equal(pairs, again)


class _Named(CrossEncoder):
    """Describes each patch by its own number, and notes which numbers draw a patch."""

    def __init__(self) -> None:
        super().__init__(nn.Identity(), nn.Identity())
        self.drawn: list[tuple[int, int]] = []

    def encode(self, patches: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        number = patches[:, 0, 0, 0][:, None]
        return number.repeat(1, GAZE_SIZE), number.repeat(1, EYE_SIZE)

    def decode(self, gaze: torch.Tensor, eye: torch.Tensor) -> torch.Tensor:
        self.drawn = list(zip(gaze[:, 0].int().tolist(), eye[:, 0].int().tolist(), strict=True))
        return torch.zeros(len(gaze), 1, 36, 60)


def test_half_of_the_pairs_change_eye_features_and_half_gaze_features() -> None:
    patches = torch.arange(16.0).reshape(4, 2, 2, 1, 1).expand(4, 2, 2, 36, 60)
    module = _Named()
    pairs_loss(module, patches)
    # Pairs 0 and 1: the eye feature is of the same eye in the other frame.
    # Pairs 2 and 3: the gaze feature is of the other eye in the same frame.
    assert module.drawn == [
        (0, 2), (1, 3), (2, 0), (3, 1), (4, 6), (5, 7), (6, 4), (7, 5),
        (9, 8), (8, 9), (11, 10), (10, 11), (13, 12), (12, 13), (15, 14), (14, 15),
    ]  # fmt: skip
    pairs_loss(module, patches, crossed=False)
    assert module.drawn == [(number, number) for number in range(16)]


def test_the_loss_is_that_of_the_paper() -> None:
    patches = torch.randn(6, 2, 2, 36, 60)
    loss = float(pairs_loss(_Named(), patches))
    x = patches.numpy()
    frames, eyes = x[:, 0] - x[:, 1], x[:, :, 0] - x[:, :, 1]
    expected = np.abs(x).mean() + np.abs(frames).mean() + 0.5 * np.abs(eyes).mean()
    assert loss == pytest.approx(expected, rel=1e-5)


def test_features_of_gaze_are_four_vectors_of_length_1() -> None:
    module = to_module(new_network("cross-encoder-small"))
    assert isinstance(module, CrossEncoder)
    data = to_tensors(samples_of(count=8))
    patches = frames_of(data, torch.tensor([[0, 2]]))
    assert patches.shape == (1, 2, 2, 36, 60)
    assert torch.equal(patches[0, 1, 1], data.patches[4 + 2, 0])
    gaze, eye = module.encode(data.patches)
    assert gaze.shape == (8, 12)
    assert eye.shape == (8, 32)
    lengths = gaze.reshape(8, 4, 3).norm(dim=2)
    assert torch.allclose(lengths, torch.ones(8, 4), atol=1e-5)
    assert module(data.patches).shape == (8, 1, 36, 60)
