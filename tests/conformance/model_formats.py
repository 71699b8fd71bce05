"""The laws of `aggregators.formats.ModelFormat`, as tests that every format passes.

A format's member subclasses `ModelFormatSuite` in ``tests/aggregators/formats/test_conformance.py``
and gives its name in `FORMATS` and some models.
"""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aggregators.errors import ConversionError, FormatError
from aggregators.formats import (
    FORMATS,
    decode_model,
    encode_model,
    file_digest,
    fingerprint,
    read_model,
    recognise,
    write_model,
)
from aggregators.formats.registry import HEAD_BYTES
from aggregators.models import Model
from tests.aggregators.formats.examples import (
    assert_equal_models,
    make_detector,
    make_predictor,
    make_state_dict,
)

# Memory for decoding besides a few times the file: report arrays, error texts, JSON objects.
_FIXED_BYTES = 200_000

# The same test runs for each subclass, on purpose.
_INHERITED = [HealthCheck.differing_executors]


class ModelFormatSuite:
    """Subclasses set the format's name and its examples."""

    format_name: str

    @staticmethod
    def examples() -> Iterator[Model]:
        """Yield models that the format holds, all kinds of them."""
        raise NotImplementedError

    @classmethod
    def files(cls) -> list[bytes]:
        return [encode_model(model, cls.format_name) for model in cls.examples()]

    def test_decoding_undoes_encoding(self) -> None:
        for model, data in zip(self.examples(), self.files(), strict=True):
            decoded = decode_model(data)
            if FORMATS[self.format_name].exact:
                assert_equal_models(model, decoded)
            assert encode_model(decoded, self.format_name) == data

    def test_the_same_model_gives_the_same_bytes(self) -> None:
        assert self.files() == self.files()

    def test_only_this_format_recognises_its_files(self) -> None:
        for data in self.files():
            head = data[:HEAD_BYTES]
            assert [f.name for f in FORMATS.values() if f.recognises(head)] == [self.format_name]

    def test_any_buffer_is_decoded_without_changing_it(self) -> None:
        for data in self.files():
            for buffer in (bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)):
                assert encode_model(decode_model(buffer), self.format_name) == data
                assert bytes(buffer) == data

    def test_every_truncation_is_refused(self) -> None:
        for data in self.files():
            for length in range(0, len(data), max(1, len(data) // 3000)):
                if self._is_complete(data, length):
                    continue
                with pytest.raises(FormatError) as caught:
                    FORMATS[self.format_name].decode(data[:length])
                assert 0 <= caught.value.offset <= length
                with pytest.raises(FormatError):
                    decode_model(data[:length])

    def _is_complete(self, data: bytes, length: int) -> bool:
        """Return whether these first bytes happen to be a whole file."""
        return False

    @pytest.mark.parametrize("tail", [b"\0", b"\1", b"\1\1", b"\1\1\1\0\1", b"x" * 100])
    def test_trailing_bytes_are_refused(self, tail: bytes) -> None:
        for data in self.files():
            with pytest.raises(FormatError) as caught:
                FORMATS[self.format_name].decode(data + tail)
            assert caught.value.offset <= len(data) + len(tail)

    @settings(max_examples=150, deadline=None, suppress_health_check=_INHERITED)
    @given(st.data())
    def test_changed_bytes_are_refused_or_give_a_sound_model(self, draw: st.DataObject) -> None:
        data = bytearray(draw.draw(st.sampled_from(self.files())))
        for _ in range(draw.draw(st.integers(1, 3))):
            near_start = draw.draw(st.booleans())
            last = min(len(data), 600 if near_start else len(data)) - 1
            data[draw.draw(st.integers(0, last))] = draw.draw(st.integers(0, 255))
        result = self._try_to_decode(bytes(data))
        if isinstance(result, FormatError):
            assert 0 <= result.offset <= len(data)
            assert result.actual
            assert result.expected
        else:
            self._use(result)

    @settings(max_examples=100, deadline=None, suppress_health_check=_INHERITED)
    @given(st.data())
    def test_memory_stays_near_the_size_of_the_file(self, draw: st.DataObject) -> None:
        data = bytearray(draw.draw(st.sampled_from(self.files())))
        position = draw.draw(st.integers(0, min(len(data), 600) - 1))
        data[position : position + 1] = draw.draw(
            st.sampled_from([b"\x08" + b"\xff" * 7 + b"\x7f", b"\x05" + b"\x7f" * 5, b"\xff" * 8])
        )
        tracemalloc.start()
        self._try_to_decode(bytes(data))
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak_bytes < 4 * len(data) + _FIXED_BYTES

    def _try_to_decode(self, data: bytes) -> Model | FormatError:
        try:
            return FORMATS[self.format_name].decode(data)
        except FormatError as error:
            return error

    def _use(self, model: Model) -> None:
        """Touch all of a model that was decoded from damaged bytes."""
        fingerprint(model, self.format_name)
        data = encode_model(model, self.format_name)
        assert encode_model(decode_model(data), self.format_name) == data

    def test_files_are_written_and_read(self, tmp_path: Path) -> None:
        for number, (model, data) in enumerate(zip(self.examples(), self.files(), strict=True)):
            path = tmp_path / f"model-{number}.bin"
            digest = write_model(model, path, format_name=self.format_name)
            assert path.read_bytes() == data
            assert digest == file_digest(path)
            assert recognise(path).name == self.format_name
            assert encode_model(read_model(path), self.format_name) == data
            assert list(tmp_path.glob("*.partial")) == []

    def test_errors_name_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "damaged"
        path.write_bytes(self.files()[0][:-1])
        with pytest.raises(FormatError, match="damaged"):
            read_model(path)

    def test_large_files_are_refused_unread(self, tmp_path: Path) -> None:
        path = tmp_path / "large"
        path.write_bytes(self.files()[0])
        with pytest.raises(FormatError, match="file size: found"):
            read_model(path, max_bytes=10)

    def test_other_models_are_refused_before_anything_is_written(self, tmp_path: Path) -> None:
        member = FORMATS[self.format_name]
        for model in (make_detector(), make_predictor(), make_state_dict()):
            if member.holds(model):
                continue
            with pytest.raises(ConversionError):
                member.encode(model)
            with pytest.raises(ConversionError, match=self.format_name):
                write_model(model, tmp_path / "model", format_name=self.format_name)
        assert list(tmp_path.iterdir()) == []

    def test_fingerprints_are_plain_values(self) -> None:
        import json

        for model in self.examples():
            described = fingerprint(model, self.format_name)
            assert described["format"] == self.format_name
            assert json.loads(json.dumps(described)) == described
