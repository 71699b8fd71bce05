"""Logistic and ridge regression in a few lines: attacks learn from few shadow sites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from site_agent.attacks.leaks import Float64


@dataclass(frozen=True, eq=False)
class Logistic:
    """A fitted logistic regression."""

    centre: Float64
    scale: Float64
    weights: Float64

    def predict(self, features: Float64) -> Float64:
        """Return the probability of each row, 0 to 1: shape (n,)."""
        scaled = (features - self.centre) / self.scale
        return _sigmoid(self.weights[0] + scaled @ self.weights[1:])


def fit_logistic(
    features: Float64, labels: NDArray[np.bool_], penalty: float = 1.0, steps: int = 25
) -> Logistic:
    """Fit a logistic regression with an L2 penalty by Newton's method, classes weighted alike.

    Parameters
    ----------
    features : float64, shape (n, columns)
    labels : bool, shape (n,)
        Some of either kind.
    """
    centre, scale = features.mean(axis=0), features.std(axis=0) + 1e-12
    rows = np.column_stack([np.ones(len(features)), (features - centre) / scale])
    target = labels.astype(np.float64)
    share = np.where(labels, 0.5 / target.mean(), 0.5 / (1 - target).mean())
    ridge = penalty * np.eye(rows.shape[1])
    ridge[0, 0] = 1e-9
    weights = np.zeros(rows.shape[1])
    for _ in range(steps):
        found = _sigmoid(rows @ weights)
        slope = rows.T @ (share * (found - target)) + ridge @ weights
        curve = (rows * (share * found * (1 - found))[:, None]).T @ rows + ridge
        weights = weights - np.linalg.solve(curve, slope)
    return Logistic(centre, scale, weights)


def kernel_ridge(known: Float64, between: Float64, values: Float64, penalty: float) -> Float64:
    """Return predictions of kernel ridge regression.

    Parameters
    ----------
    known : float64, shape (n, n)
        Kernel among the rows whose values are known.
    between : float64, shape (m, n)
        Kernel between the rows to predict and those.
    values : float64, shape (n, columns)
    penalty : float
        In means of the diagonal of `known`.

    Returns
    -------
    float64, shape (m, columns)
    """
    mean = values.mean(axis=0)
    ridge = penalty * np.trace(known) / len(known) * np.eye(len(known))
    predicted: Float64 = mean + between @ np.linalg.solve(known + ridge, values - mean)
    return predicted


def _sigmoid(values: Float64) -> Float64:
    return 1 / (1 + np.exp(-np.clip(values, -50, 50)))
