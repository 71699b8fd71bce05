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

import codecs
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from aggregators.whole_file import whole_file
from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset
from site_agent.errors import AnnotationFileError
from site_agent.named_files import find_named

# Coordinates beyond this are a slip, and would overflow dlib's arithmetic.
_LARGEST_COORDINATE_PX = 1_000_000


def read_imglab_xml(path: Path | str) -> FaceDataset:
    """Read an annotation file of dlib; `check_datasets` opens the images.

    The paths of the images are joined to the folder of `path`. Empty boxes marked `ignore` are
    left out.

    Raises `AnnotationFileError`: when the file cannot be read, is not such XML, has a document
    type, or an attribute is missing or not a number. The text names the file and the line.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise AnnotationFileError(path, 0, f"cannot be read: {error.strerror}") from error
    reader = _Reader(path, _encoding_of(content))
    try:
        reader.parser.Parse(content, True)
    except expat.ExpatError as error:
        problem = f"is not well-formed XML: {expat.ErrorString(error.code)}"
        raise AnnotationFileError(path, error.lineno, problem) from error
    except (LookupError, ValueError) as error:
        raise AnnotationFileError(path, 0, f"cannot be decoded: {error}") from error
    return FaceDataset(path, reader.name, reader.comment, tuple(reader.images))


def _encoding_of(content: bytes) -> str | None:
    """Return the encoding of a file, None where its declaration tells.

    dlib's tools write the bytes of the file system, and always declare them ISO-8859-1;
    dlib reads any bytes.
    """
    declared = _DECLARATION.search(content[:_HEAD_BYTES])
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or (
        declared is not None and declared[1].lower() not in _OF_DLIB
    ):
        return None
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "iso-8859-1"
    return "utf-8"


_HEAD_BYTES = 200
_OF_DLIB = {b"utf-8", b"iso-8859-1", b"us-ascii", b"ascii"}
_DECLARATION = re.compile(rb"<\?xml[^>]*encoding\s*=\s*[\"']([\w.:-]+)")


def write_imglab_xml(dataset: FaceDataset, path: Path | str) -> None:
    """Write an annotation file that dlib and imglab read.

    Landmarks are rounded to whole pixels, because dlib reads no others. File names are written
    relative to the folder of `path`; the file takes its place only when it is complete.
    """
    path = Path(path)
    head = (
        "<?xml version='1.0' encoding='UTF-8'?>\n<dataset>\n"
        f"<name>{escape(dataset.name)}</name>\n"
        f"<comment>{escape(dataset.comment)}</comment>\n<images>\n"
    )
    try:
        with whole_file(path) as stream:
            stream.write(head.encode())
            for image in dataset.images:
                stream.write(_image_element(image, path.parent).encode())
            stream.write(b"</images>\n</dataset>\n")
    except UnicodeEncodeError as error:
        problem = f"cannot be written: the name of an image is not UTF-8: {error.object!r}"
        raise AnnotationFileError(path, 0, problem) from error
    except OSError as error:
        raise AnnotationFileError(path, 0, f"cannot be written: {error.strerror}") from error


def _image_element(image: AnnotatedImage, folder: Path) -> str:
    file_name = Path(os.path.relpath(image.path, folder)).as_posix()
    size = ""
    if image.width_px is not None and image.height_px is not None:
        size = f" width='{image.width_px}' height='{image.height_px}'"
    boxes = "".join(_box_element(box) for box in image.boxes)
    return f"  <image file={quoteattr(file_name)}{size}>\n{boxes}  </image>\n"


def _box_element(box: FaceBox) -> str:
    attributes = f"top='{box.top}' left='{box.left}' width='{box.width}' height='{box.height}'"
    for name in ("ignore", "difficult", "occluded", "truncated"):
        if getattr(box, name):
            attributes += f" {name}='1'"
    if box.detection_score:
        attributes += f" detection_score='{box.detection_score!r}'"
    lines = [] if box.label is None else [f"      <label>{escape(box.label)}</label>\n"]
    lines += [
        f"      <part name={quoteattr(name)} x='{_whole(x)}' y='{_whole(y)}'/>\n"
        for name, (x, y) in box.parts.items()
    ]
    return f"    <box {attributes}>\n{''.join(lines)}    </box>\n"


def _whole(value: float) -> int:
    # Halves go up, as in dlib; Python's round() would move x.5 to the even neighbour.
    return math.floor(value + 0.5)


@dataclass
class _Element:
    """An XML element and the line on which it begins."""

    name: str
    attributes: dict[str, str]
    line: int
    children: "list[_Element]" = field(default_factory=list)
    text: str = ""


class _Reader:
    """Keeps the elements of one image at a time, and turns them into records at its end."""

    def __init__(self, path: Path, encoding: str | None) -> None:
        self.path = path
        self.name = ""
        self.comment = ""
        self.images: list[AnnotatedImage] = []
        self._open: list[_Element] = []
        self.parser = expat.ParserCreate(encoding)
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._add_text
        self.parser.StartDoctypeDeclHandler = self._refuse_document_type

    def _fail(self, line: int, problem: str) -> NoReturn:
        raise AnnotationFileError(self.path, line, problem)

    def _refuse_document_type(self, name: str, *_: object) -> None:
        self._fail(
            self.parser.CurrentLineNumber,
            f"declares a document type (<!DOCTYPE {name}>), which dlib's format does not have "
            "and which is refused for safety; remove the declaration",
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        if not self._open and name != "dataset":
            self._fail(line, f"begins with <{name}>, expected <dataset> as in dlib's files")
        self._open.append(_Element(name, attributes, line))

    def _add_text(self, text: str) -> None:
        self._open[-1].text += text

    def _end(self, name: str) -> None:
        element = self._open.pop()
        if name == "image":
            self.images.append(self._image(element))
        elif name in ("box", "part", "label") and self._open:
            self._open[-1].children.append(element)
        elif name in ("name", "comment") and len(self._open) == 1:
            setattr(self, name, element.text.strip())

    def _image(self, element: _Element) -> AnnotatedImage:
        file_name = self._required(element, "file")
        if not file_name.strip():
            self._fail(element.line, "has an <image> with an empty file name")
        sizes = [
            self._integer(element, key) if key in element.attributes else None
            for key in ("width", "height")
        ]
        boxes = [self._box(child) for child in element.children if child.name == "box"]
        return AnnotatedImage(
            path=find_named(self.path.parent, file_name),
            boxes=tuple(box for box in boxes if box is not None),
            width_px=sizes[0],
            height_px=sizes[1],
            line=element.line,
        )

    def _box(self, element: _Element) -> FaceBox | None:
        """Return the box; None for an empty one marked `ignore`."""
        left, top, width, height = (
            self._integer(element, key) for key in ("left", "top", "width", "height")
        )
        marks = {
            key: self._flag(element, key)
            for key in ("ignore", "difficult", "occluded", "truncated")
        }
        if width <= 0 or height <= 0:
            if marks["ignore"]:
                return None
            text = f"has a box of {width} x {height} pixels; width and height must be above 0"
            self._fail(element.line, text)
        parts = {}
        for part in element.children:
            if part.name == "part":
                name = self._required(part, "name")
                if name in parts:
                    self._fail(part.line, f"has the part {name!r} twice in one box")
                parts[name] = self._number(part, "x"), self._number(part, "y")
        labels = [child.text.strip() for child in element.children if child.name == "label"]
        score = self._number(element, "detection_score", default="0")
        return FaceBox(
            left,
            top,
            width,
            height,
            parts,
            **marks,
            label=labels[0] or None if labels else None,
            detection_score=score,
            line=element.line,
        )

    def _required(self, element: _Element, key: str) -> str:
        if key not in element.attributes:
            self._fail(element.line, f"has a <{element.name}> without the attribute {key!r}")
        return element.attributes[key]

    def _number(self, element: _Element, key: str, default: str | None = None) -> float:
        text = element.attributes.get(key, default) or self._required(element, key)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not abs(value) <= _LARGEST_COORDINATE_PX:
            problem = f"has a <{element.name}> whose {key} is {text!r}, not a number of pixels"
            self._fail(element.line, problem)
        return value

    def _integer(self, element: _Element, key: str) -> int:
        value = self._number(element, key)
        if not value.is_integer():  # some tools write 12.0; that is still a whole number
            problem = f"has a <{element.name}> whose {key} is {value}, not a whole number of pixels"
            self._fail(element.line, problem)
        return int(value)

    def _flag(self, element: _Element, key: str) -> bool:
        text = element.attributes.get(key, "0").strip().lower()
        if text not in ("0", "1", "false", "true"):
            self._fail(element.line, f"has a <box> whose {key} is {text!r}, neither 0 nor 1")
        return text in ("1", "true")
