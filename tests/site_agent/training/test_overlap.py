"""Test pictures that a model has learned."""

from pathlib import Path

from site_agent.training.overlap import training_overlap
from site_agent.training_record import remember_learned


def test_contributions_of_one_name_are_named_once(tmp_path: Path) -> None:
    network, digests = tmp_path / "network.safetensors", ["a" * 64, "b" * 64]
    network.write_bytes(b"network")
    for digest in digests:
        remember_learned(digest, {"name": "live round 1", "data": {"image_marks": ["mark"]}})
    overlap = training_overlap(network, ["mark", "other"], "", digests)
    assert overlap is not None
    assert overlap.words.startswith("1 of the 2 images are those that live round 1 was trained on")
