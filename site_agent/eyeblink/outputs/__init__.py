"""Outputs of an analysis: one file each, and one line each in `OUTPUTS`."""

from __future__ import annotations

from site_agent.eyeblink.outputs.registry import (
    ON_REQUEST,
    OUTPUTS,
    BlinkOutput,
    WrittenOutputs,
    check_requested,
    write_outputs,
)

__all__ = [
    "ON_REQUEST",
    "OUTPUTS",
    "BlinkOutput",
    "WrittenOutputs",
    "check_requested",
    "write_outputs",
]
