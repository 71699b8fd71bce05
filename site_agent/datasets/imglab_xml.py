"""The XML files of dlib and its tool imglab: images, face boxes and landmarks.

::

    <dataset>
      <name>...</name> <comment>...</comment>
      <images>
        <image file='faces/one.jpg' width='640' height='480'>
          <box top='90' left='194' width='37' height='37' ignore='1'>
            <label>face</label>
            <part name='00' x='201' y='107'/>
          </box>
        </image>
      </images>
    </dataset>

File names are relative to the folder of the XML file. A document type is refused: nothing in the
format needs one, and entities could make a small file expand without end or read other files.
"""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from aggregators.whole_file import whole_file
from site_agent.datasets.problems import Problems
from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset
from site_agent.errors import AnnotationFileError

_TRUE = {"1", "true", "yes"}
_FALSE = {"0", "false", "no", ""}
# Coordinates beyond this are a slip, and would overflow dlib's arithmetic.
_LARGEST_COORDINATE_PX = 1_000_000


def read_imglab_xml(path: Path | str) -> FaceDataset:
    """Read an annotation file of dlib.

    The images themselves are not opened; `check_dataset` does that.

    Parameters
    ----------
    path : Path or str
        The XML file, in any encoding that it declares.

    Returns
    -------
    FaceDataset
        With the paths of the images joined to the folder of `path`.

    Raises
    ------
    AnnotationFileError
        When the file cannot be read, is no such XML, has a document type, or when an attribute
        is missing or no number. The text names the file and the line, of all boxes and images at
        fault. Only boxes to be ignored may be empty: they are left out.
    """
    path = Path(path)
    reader = _Reader(path)
    try:
        with path.open("rb") as stream:
            reader.parser.ParseFile(stream)
    except expat.ExpatError as error:
        problem = f"is not well-formed XML: {expat.ErrorString(error.code)}"
        raise AnnotationFileError(path, error.lineno, problem) from error
    except (LookupError, UnicodeError, ValueError) as error:
        raise AnnotationFileError(path, reader.line, f"cannot be decoded: {error}") from error
    except OSError as error:
        raise AnnotationFileError(path, 0, f"cannot be read: {error.strerror}") from error
    return reader.dataset()


def write_imglab_xml(dataset: FaceDataset, path: Path | str) -> None:
    """Write an annotation file that dlib and imglab read.

    Landmarks are rounded to whole pixels, because dlib reads no others. File names are written
    relative to the folder of `path`; the file takes its place only when it is complete.

    Raises
    ------
    AnnotationFileError
        When the file cannot be written, or the name of an image is no UTF-8.
    """
    path = Path(path)
    for image in dataset.images:
        _require_utf8(image, dataset.path or path)
    head = (
        "<?xml version='1.0' encoding='UTF-8'?>\n<dataset>\n"
        f"<name>{_text(dataset.name)}</name>\n"
        f"<comment>{_text(dataset.comment)}</comment>\n<images>\n"
    )
    try:
        with whole_file(path) as stream:
            stream.write(head.encode())
            for image in dataset.images:
                stream.write(_image_element(image, path.parent).encode())
            stream.write(b"</images>\n</dataset>\n")
    except OSError as error:
        raise AnnotationFileError(path, 0, f"cannot be written: {error.strerror}") from error


def _require_utf8(image: AnnotatedImage, place: Path) -> None:
    try:
        str(image.path).encode("utf-8")
    except UnicodeEncodeError as error:
        name = os.fsencode(image.path).decode("utf-8", "backslashreplace")
        problem = (
            f"the name of the image {name} is no UTF-8, which XML needs; rename it, or have the "
            "images of the data set copied (--copy)"
        )
        raise AnnotationFileError(place, image.line, problem) from error


def _image_element(image: AnnotatedImage, folder: Path) -> str:
    file_name = Path(os.path.relpath(image.path, folder)).as_posix()
    size = ""
    if image.width_px is not None and image.height_px is not None:
        size = f" width='{image.width_px}' height='{image.height_px}'"
    boxes = "".join(_box_element(box) for box in image.boxes)
    return f"  <image file={_attribute(file_name)}{size}>\n{boxes}  </image>\n"


def _box_element(box: FaceBox) -> str:
    attributes = f"top='{box.top}' left='{box.left}' width='{box.width}' height='{box.height}'"
    for name in ("ignore", "difficult", "occluded", "truncated"):
        if getattr(box, name):
            attributes += f" {name}='1'"
    for name in ("pose", "angle", "detection_score"):
        if getattr(box, name):
            attributes += f" {name}='{getattr(box, name)!r}'"
    if box.gender is not None:
        attributes += f" gender={_attribute(box.gender)}"
    if box.age is not None:
        attributes += f" age='{box.age!r}'"
    lines = [] if box.label is None else [f"      <label>{_text(box.label)}</label>\n"]
    lines += [
        f"      <part name={_attribute(name)} x='{_whole(x)}' y='{_whole(y)}'/>\n"
        for name, (x, y) in box.parts.items()
    ]
    if not lines:
        return f"    <box {attributes}/>\n"
    return f"    <box {attributes}>\n{''.join(lines)}    </box>\n"


def _whole(value: float) -> int:
    # Halves go up, as in dlib; Python's round() would move x.5 to the even neighbour.
    return math.floor(value + 0.5)


def _writable(text: str) -> str:
    # XML 1.0 has no way to write control characters; a name with one could not be read back.
    return "".join(c if c >= " " or c in "\t\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _text(text: str) -> str:
    return escape(_writable(text))


def _attribute(text: str) -> str:
    return quoteattr(_writable(text))


@dataclass
class _OpenBox:
    """A box whose end has not been read yet."""

    line: int
    attributes: dict[str, str]
    parts: dict[str, tuple[float, float]] = field(default_factory=dict)
    label: str | None = None


class _Reader:
    """Handlers of the XML parser; collects images as their elements end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = ""
        self.comment = ""
        self.images: list[AnnotatedImage] = []
        self._open: list[str] = []
        self._text: list[str] = []
        self._image: tuple[int, dict[str, str]] | None = None
        self._boxes: list[FaceBox] = []
        self._box: _OpenBox | None = None
        self._problems = Problems()
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text.append
        self.parser.StartDoctypeDeclHandler = self._refuse_document_type

    @property
    def line(self) -> int:
        return int(self.parser.CurrentLineNumber)

    def dataset(self) -> FaceDataset:
        self._problems.raise_all()
        return FaceDataset(self.path, self.name, self.comment, tuple(self.images))

    def _fail(self, problem: str, line: int | None = None) -> AnnotationFileError:
        return AnnotationFileError(self.path, self.line if line is None else line, problem)

    def _refuse_document_type(self, name: str, *_: object) -> None:
        raise self._fail(
            f"declares a document type (<!DOCTYPE {name}>), which dlib's format does not have "
            "and which is refused for safety; remove the declaration"
        )

    def _start(self, element: str, attributes: dict[str, str]) -> None:
        if not self._open and element != "dataset":
            raise self._fail(
                f"begins with <{element}>, but dlib's annotation files begin with <dataset>"
            )
        self._open.append(element)
        self._text.clear()
        if element == "image":
            if self._image is not None:
                raise self._fail("has an <image> inside another <image>")
            self._image = (self.line, attributes)
            self._boxes = []
        elif element == "box":
            if self._image is None:
                raise self._fail("has a <box> outside any <image>")
            if self._box is not None:
                raise self._fail("has a <box> inside another <box>")
            self._box = _OpenBox(self.line, attributes)
        elif element == "part":
            if self._box is None:
                raise self._fail("has a <part> outside any <box>")
            with self._problems.gathered():
                self._take_part(self._box, attributes)

    def _end(self, element: str) -> None:
        text = "".join(self._text).strip()
        self._text.clear()
        self._open.pop()
        if element == "name" and self._open == ["dataset"]:
            self.name = text
        elif element == "comment" and self._open == ["dataset"]:
            self.comment = text
        elif element == "label" and self._box is not None:
            self._box.label = text or None
        elif element == "box" and self._box is not None:
            with self._problems.gathered():
                self._boxes += self._finished_box(self._box)
            self._box = None
        elif element == "image" and self._image is not None:
            with self._problems.gathered():
                self.images.append(self._finished_image(*self._image))
            self._image = None

    def _take_part(self, box: _OpenBox, attributes: dict[str, str]) -> None:
        name = self._required(attributes, "name", "part", self.line)
        if name in box.parts:
            raise self._fail(f"has the part {name!r} twice in the box of line {box.line}")
        box.parts[name] = (
            self._number(attributes, "x", "part", self.line),
            self._number(attributes, "y", "part", self.line),
        )

    def _finished_box(self, box: _OpenBox) -> tuple[FaceBox, ...]:
        """Return the box, or nothing for an empty one that is to be ignored."""
        given, line = box.attributes, box.line
        width, height = (self._integer(given, key, "box", line) for key in ("width", "height"))
        ignore = self._flag(given, "ignore", line)
        if width <= 0 or height <= 0:
            if ignore:
                return ()
            raise self._fail(
                f"has a box of {width} x {height} pixels; width and height must be above 0", line
            )
        found = FaceBox(
            left=self._integer(given, "left", "box", line),
            top=self._integer(given, "top", "box", line),
            width=width,
            height=height,
            parts=box.parts,
            ignore=ignore,
            difficult=self._flag(given, "difficult", line),
            occluded=self._flag(given, "occluded", line),
            truncated=self._flag(given, "truncated", line),
            label=box.label,
            pose=self._number(given, "pose", "box", line, default=0.0),
            angle=self._number(given, "angle", "box", line, default=0.0),
            detection_score=self._number(given, "detection_score", "box", line, default=0.0),
            gender=given.get("gender"),
            age=_age(given.get("age", "")),
            line=line,
        )
        return (found,)

    def _finished_image(self, line: int, attributes: dict[str, str]) -> AnnotatedImage:
        file_name = self._required(attributes, "file", "image", line)
        if not file_name.strip():
            raise self._fail("has an <image> with an empty file name", line)
        if "\0" in file_name:
            raise self._fail("has an <image> with a NUL character in its file name", line)
        size: list[int | None] = []
        for key in ("width", "height"):
            value = self._integer(attributes, key, "image", line) if key in attributes else None
            if value is not None and value <= 0:
                raise self._fail(f"has an <image> with {key}={value}; it must be above 0", line)
            size.append(value)
        return AnnotatedImage(
            path=_image_path(self.path.parent, file_name),
            boxes=tuple(self._boxes),
            width_px=size[0],
            height_px=size[1],
            line=line,
        )

    def _required(self, attributes: dict[str, str], key: str, element: str, line: int) -> str:
        if key not in attributes:
            raise self._fail(f"has a <{element}> without the attribute {key!r}", line)
        return attributes[key]

    def _number(
        self,
        attributes: dict[str, str],
        key: str,
        element: str,
        line: int,
        default: float | None = None,
    ) -> float:
        if default is not None and key not in attributes:
            return default
        text = self._required(attributes, key, element, line)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self._fail(f"has a <{element}> whose {key} is {text!r}, not a number", line)
        if abs(value) > _LARGEST_COORDINATE_PX:
            raise self._fail(f"has a <{element}> whose {key} is {text}, beyond any image", line)
        return value

    def _integer(self, attributes: dict[str, str], key: str, element: str, line: int) -> int:
        value = self._number(attributes, key, element, line)
        if value != round(value):  # some tools write 12.0; that is still a whole number
            raise self._fail(
                f"has a <{element}> whose {key} is {attributes[key]!r}, "
                "not a whole number of pixels",
                line,
            )
        return round(value)

    def _flag(self, attributes: dict[str, str], key: str, line: int) -> bool:
        text = attributes.get(key, "").strip().lower()
        if text in _TRUE | _FALSE:
            return text in _TRUE
        raise self._fail(f"has a <box> whose {key} is {attributes[key]!r}, neither 0 nor 1", line)


def _age(text: str) -> float | None:
    """Read an age in years; tools that ask for one write '' or 'unknown', too."""
    try:
        years = float(text)
    except ValueError:
        return None
    return years if math.isfinite(years) else None


def _image_path(folder: Path, file_name: str) -> Path:
    """Find the image that a file name in an annotation file means.

    Files written on Windows have backslashes, and imglab copies the bytes of a name into a file
    that it declares to be ISO-8859-1 whatever they are. Both are tried only when the name as it
    stands does not exist.
    """
    others = []
    if "\\" in file_name:
        others.append(file_name.replace("\\", "/"))
    with contextlib.suppress(UnicodeError):
        others.append(file_name.encode("latin-1").decode("utf-8"))
    candidates = [folder / name for name in (file_name, *others)]
    # A missing image of a Windows file is reported under the name that would be looked for here.
    expected = candidates[1] if "\\" in file_name else candidates[0]
    return next((path for path in candidates if _exists(path)), expected)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name longer than the file system allows
        return False
