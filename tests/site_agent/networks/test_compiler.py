"""Torch's compiler is loaded where something is compiled, and nowhere else."""

import subprocess
import sys

_TRAINED = """
import inspect, sys, torch
from site_agent.networks.modules import new_network, to_module
from site_agent.training.gaze.loop import repeatable
module = to_module(new_network("gaze-lenet", seed=1))
inspect.getmodule(inspect.currentframe())
for kind in (torch.optim.SGD, torch.optim.AdamW):
    optimiser = kind(module.parameters(), lr=0.1)
    optimiser.zero_grad()
    sum(entry.sum() for entry in module.parameters()).backward()
    with repeatable():
        optimiser.step()
    optimiser.load_state_dict(optimiser.state_dict())
"""


def run_python(text: str) -> None:
    subprocess.run([sys.executable, "-c", text], check=True)


def test_training_does_not_load_the_compiler() -> None:
    run_python(_TRAINED + 'assert "torch._dynamo.eval_frame" not in sys.modules')


def test_a_network_can_be_compiled_after_training() -> None:
    run_python(
        _TRAINED
        + """
import torch._dynamo.config
compiled = torch.compile(module.conv1, backend="eager")
picture = torch.ones(1, 1, 36, 60)
assert torch.equal(compiled(picture), module.conv1(picture))
assert "torch._dynamo.eval_frame" in sys.modules
assert torch._dynamo is sys.modules["torch._dynamo"]
"""
    )
