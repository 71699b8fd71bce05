"""The laws of `ModelFormat`, tested for each format."""

from collections.abc import Iterator

from aggregators.formats import FORMATS
from aggregators.models import Model
from tests.aggregators.formats.examples import (
    make_detector,
    make_ensemble,
    make_predictor,
    make_soft_predictor,
    make_sparse_state_dict,
    make_state_dict,
)
from tests.conformance.model_formats import ModelFormatSuite


class TestFhogDetector(ModelFormatSuite):
    format_name = "dlib-fhog-detector"

    @staticmethod
    def examples() -> Iterator[Model]:
        yield make_detector()
        yield make_detector(upsampling=0)
        yield make_detector(detectors=3, upsampling=2)

    def _is_complete(self, data: bytes, length: int) -> bool:
        # Without its last two integers, a file of the Python kind is one of the C++ kind.
        return length == len(data) - 4


class TestShapePredictor(ModelFormatSuite):
    format_name = "dlib-shape-predictor"

    @staticmethod
    def examples() -> Iterator[Model]:
        yield make_predictor()
        yield make_predictor(1, ((0,),), parts=1)
        yield make_predictor(2, ((5,), (1, 1), (4, 0)), parts=2)


class TestForestFile(ModelFormatSuite):
    format_name = "poolctl-forest"

    @staticmethod
    def examples() -> Iterator[Model]:
        yield make_predictor()
        yield make_ensemble()


class TestHalfForestFile(ModelFormatSuite):
    format_name = "poolctl-forest-half"

    @staticmethod
    def examples() -> Iterator[Model]:
        yield make_soft_predictor()
        yield make_ensemble(soft=True)


class TestTensors(ModelFormatSuite):
    format_name = "safetensors"

    @staticmethod
    def examples() -> Iterator[Model]:
        yield make_state_dict()


class TestSparseTensors(ModelFormatSuite):
    format_name = "poolctl-sparse"

    @staticmethod
    def examples() -> Iterator[Model]:
        yield make_state_dict()
        yield make_sparse_state_dict()


def test_every_format_has_a_suite() -> None:
    assert {suite.format_name for suite in ModelFormatSuite.__subclasses__()} == set(FORMATS)
