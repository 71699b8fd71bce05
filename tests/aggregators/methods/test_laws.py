"""Every aggregation method obeys the laws of the contract."""

from dataclasses import replace
from typing import Any, ClassVar

from aggregators import METHODS
from aggregators.models import FhogDetector, ForestEnsemble, Model, ShapePredictor, StateDict
from tests.aggregators.small_models import (
    make_detector,
    make_ensemble,
    make_network,
    make_predictor,
)
from tests.conformance.aggregation_methods import AggregationMethodLaws
from tests.conformance.robust_methods import RobustMethodLaws

SHAPE = make_predictor(0).initial_shape


def make_predictor_alike(seed: int) -> ShapePredictor:
    return make_predictor(seed, initial_shape=SHAPE)


class TestMwma(AggregationMethodLaws):
    method_name = "mwma"
    make_model = staticmethod(make_detector)
    make_alike = staticmethod(make_detector)

    @staticmethod
    def make_incompatible() -> tuple[FhogDetector, str]:
        return make_detector(9, window_px=64), "window"


class TestMwmaWithSeveralFilters(TestMwma):
    @staticmethod
    def make_model(seed: int) -> Model:
        return make_detector(seed, detectors=5)

    make_alike = make_model

    @staticmethod
    def make_incompatible() -> tuple[FhogDetector, str]:
        return make_detector(9), "number of detectors"


class TestWbaFinal(AggregationMethodLaws):
    method_name = "wba-final"
    make_model = staticmethod(make_predictor)
    make_alike = staticmethod(make_predictor_alike)

    @staticmethod
    def make_incompatible() -> tuple[ShapePredictor, str]:
        return make_predictor(9, parts=7), "parts"


class TestWbaFinalOfEnsembles(TestWbaFinal):
    make_model = staticmethod(make_ensemble)

    @staticmethod
    def make_alike(seed: int) -> Model:
        ensemble = make_ensemble(seed)
        members = tuple(replace(member, initial_shape=SHAPE) for member in ensemble.members)
        return ForestEnsemble(members, ensemble.weights)


class TestWbaCascade(AggregationMethodLaws):
    method_name = "wba-cascade"
    make_model = staticmethod(make_predictor)
    make_alike = staticmethod(make_predictor_alike)
    other_options = ({"step": 1.1}, {"thin": 2}, {"thin": 4, "step": 0.7}, {"thin": 100})

    @staticmethod
    def make_incompatible() -> tuple[ShapePredictor, str]:
        return make_predictor(9, depths=((2,), (1,), (3,))), "levels"


class TestFedAvg(AggregationMethodLaws):
    method_name = "fedavg"
    make_model = staticmethod(make_network)
    make_alike = staticmethod(make_network)

    @staticmethod
    def make_incompatible() -> tuple[StateDict, str]:
        return make_network(9, hidden=5), "entry 'body.weight'"


class TestFedAvgOfOtherArchitectures(TestFedAvg):
    @staticmethod
    def make_incompatible() -> tuple[StateDict, str]:
        return make_network(9, architecture="large"), "architecture"


class TestTrimmedMean(RobustMethodLaws):
    method_name = "trimmed-mean"
    other_options = ({"trim": 0.0}, {"trim": 0.4}, {"trim": 0.5})
    hostile_options: ClassVar[dict[str, Any]] = {"trim": 0.3}


class TestMedian(RobustMethodLaws):
    method_name = "median"


class TestKrum(RobustMethodLaws):
    method_name = "krum"
    other_options = ({"hostile": 0},)
    hostile_options: ClassVar[dict[str, Any]] = {"hostile": 3}
    fewest_inputs = 3


class TestNormClip(RobustMethodLaws):
    method_name = "norm-clip"
    other_options = ({"limit": 1.5},)
    moves_with_inputs = False


class TestGeometricMedian(RobustMethodLaws):
    method_name = "geometric-median"
    other_options = ({"smoothing": 0.1},)


def test_every_method_has_its_tests_here() -> None:
    tested = {
        member.method_name
        for member in globals().values()
        if isinstance(member, type) and issubclass(member, AggregationMethodLaws)
        if hasattr(member, "method_name")
    }
    # They take contributions to one base; see test_leaf_refit.py, networks/test_fedopt.py and
    # networks/test_fedpac.py.
    rounds_only = {"leaf-refit", "fedavgm", "fedadam", "fedyogi", "fedadagrad", "fedpac"}
    rounds_only |= {"fedprox", "fedper", "fedselect", "fedcpf", "cpf-random", "local"}
    assert tested | rounds_only == set(METHODS)
