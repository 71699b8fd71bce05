"""Sixty mistakes of newcomers: ``python -m tests.benchmarks.mistakes [WORD]`` (a minute or two).

Prints the exit code of each, the hint, and the answer. It ends with exit code 1 if a mistake passes
unnoticed, is taken for a fault of the program, or is answered without the way out. WORD chooses
mistakes by a part of their names.
"""

import errno
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aggregators import whole_file
from aggregators.formats import write_model
from site_agent.datasets.synthetic.sites import write_face_dataset
from tests.aggregators.small_models import make_detector, make_predictor
from tests.cli.conftest import Outcome, run_here
from tests.pool_server.pool_driver import PoolDriver, pool_in_thread, upload
from tests.site_agent.faces.test_detector import small_predictor

GUIDES = ("hint:", "expected", "did you mean", "; ", "poolctl ", "--", "give ")
"""An answer shows the way out with at least one of these."""


@dataclass(frozen=True)
class Mistake:
    """A mistaken command line, and the laws of its answer."""

    name: str
    command: str
    names: str
    """The part of the answer that names the finding."""
    codes: tuple[int, ...] = (2, 5)
    environment: dict[str, str] = field(default_factory=dict)
    disk_full: bool = False
    interrupted: bool = False


NO_POOL = {"POOL_ENDPOINT": "http://127.0.0.1:9", "POOL_TOKEN": "pool_x"}
BLINK = "blink {} --landmarks eyes-68.dat -o out --no-progress"
TRACE = "blink {} --frame-rate-hz 30 -o out"
TRAIN = "train ert {} -o new.dat --set cascade_depth=1 --set num_trees_per_cascade_level=2"
EAR = TRACE.format("ear.csv")
MISTAKES = (
    Mistake("a file that is not there", BLINK.format("nowhere.mp4"), "nowhere.mp4", (4,)),
    Mistake("a folder in place of a video", BLINK.format("empty"), "empty"),
    Mistake("a text in place of a video", BLINK.format("notes.mp4"), "notes.mp4", (2, 5, 6)),
    Mistake("an empty video", BLINK.format("zero.mp4"), "zero.mp4", (2, 5, 6)),
    Mistake("a picture in place of a video", BLINK.format("pictures/a.png"), "a.png", (2, 5, 6)),
    Mistake(
        "a detector as landmarks", "blink notes.mp4 --landmarks face.svm", "face.svm", (2, 5, 6)
    ),
    Mistake("an annotation file as a model", "inspect faces/faces.xml", "faces.xml", (2, 5, 6)),
    Mistake("an empty model", "inspect zero.dat", "zero.dat", (2, 5, 6)),
    Mistake("a folder in place of a model", "inspect pictures", "pictures", (2, 4, 6)),
    Mistake("a model cut short", "inspect short.dat", "short.dat", (2, 5, 6)),
    Mistake("a trace without a rate", "blink ear.csv -o out", "rate"),
    Mistake("a trace of words", TRACE.format("words.csv"), "words.csv"),
    Mistake("an empty trace", TRACE.format("zero.csv"), "zero.csv"),
    Mistake("a trace without a column of EAR", TRACE.format("columns.csv"), "columns.csv"),
    Mistake("a rate of 0", "blink ear.csv --frame-rate-hz 0 -o out", "0"),
    Mistake("a folder without a trace", BLINK.format("empty --frame-rate-hz 30"), "empty"),
    Mistake("a video and a trace", "blink notes.mp4 ear.csv -o out", ""),
    Mistake("no video at all", "blink --landmarks eyes-68.dat", "VIDEO"),
    Mistake("pictures without times", BLINK.format("pictures"), "timestamps.csv"),
    Mistake("trials with other columns", EAR + " --trials columns.csv", "cs_onset_s"),
    Mistake("trials that are not there", EAR + " --trials no.csv", "no.csv", (4,)),
    Mistake("trials after the end", EAR + " --trials late.csv", "", (0,)),
    Mistake("an unknown setting", EAR + " --set tresh=3", "tresh"),
    Mistake("a setting of another type", EAR + " --set cr_threshold=high", "high"),
    Mistake("a settings file for another command", EAR + " --settings odd.toml", "odd.toml"),
    Mistake(
        "an output that is a file", "blink ear.csv --frame-rate-hz 30 -o ear.csv", "ear.csv", (2, 7)
    ),
    Mistake("an unknown command", "blnk session.mp4", "blnk"),
    Mistake("an unknown option", "blink ear.csv --landmark eyes.dat", "--landmark"),
    Mistake(
        "arguments in the wrong order",
        "merge eyes.dat other.dat wba-cascade -o m.dat",
        "eyes.dat",
        (2, 4),
    ),
    Mistake("a misspelt method", "merge wba-casade eyes.dat other.dat -o m.dat", "wba-casade"),
    Mistake(
        "a method for other models", "merge mwma eyes.dat other.dat -o m.dat", "mwma", (2, 5, 6)
    ),
    Mistake(
        "models that do not fit",
        "merge wba-cascade eyes.dat face.svm -o m.dat",
        "face.svm",
        (2, 5, 6),
    ),
    Mistake("a single model to merge", "merge wba-cascade eyes.dat -o one.dat", "only one", (0,)),
    Mistake(
        "weights that do not match",
        "merge wba-cascade eyes.dat other.dat --weight 1 -o m.dat",
        "weight",
    ),
    Mistake(
        "a result over an input",
        "merge wba-cascade eyes.dat other.dat -o eyes.dat",
        "eyes.dat",
        (2, 7),
    ),
    Mistake(
        "a result that is there",
        "merge wba-cascade eyes.dat other.dat -o taken.dat",
        "taken.dat",
        (7,),
    ),
    Mistake(
        "a result in no folder", "merge wba-cascade eyes.dat other.dat -o no/m.dat", "no", (2, 4)
    ),
    Mistake("a folder without annotations", "dataset check empty", "empty"),
    Mistake("annotations of no picture", "dataset check lost.xml", "gone.png", (2, 5, 6)),
    Mistake("XML of another program", "dataset check other.xml", "other.xml"),
    Mistake("a table as annotations", "dataset check columns.csv", "columns.csv"),
    Mistake("broken JSON", "dataset check broken.json", "broken.json"),
    Mistake("pictures turned by EXIF", "dataset check turned/faces.xml", "EXIF", (0, 5, 6)),
    Mistake("flipped pictures as they are", TRAIN.format("flipped/faces.xml"), "", (2, 5, 6)),
    Mistake("no pictures to train on", TRAIN.format("lost.xml"), "lost.xml", (2, 4, 5, 6)),
    Mistake(
        "other landmarks in a test", "evaluate five.dat faces/faces.xml", "five.dat", (2, 5, 6)
    ),
    Mistake("a share above 1", "dataset split faces/faces.xml --test-share 20", "0.99"),
    Mistake("drawn over a full folder", "dataset draw faces faces", "faces", (2, 7)),
    Mistake("not logged in", "models ls", "poolctl auth login", (3,)),
    Mistake("a server that is stopped", "models ls", "127.0.0.1:9", (8,), NO_POOL),
    Mistake(
        "an address of no pool",
        "auth login pool.example",
        "pool.example",
        (2, 8),
        {"POOL_TOKEN": "pool_x"},
    ),
    Mistake("a token of another pool", "models ls", "token", (3,), {"POOL_TOKEN": "pool_other"}),
    Mistake("a token with a blank", "models ls", "POOL_TOKEN", (2,), {"POOL_TOKEN": "pool _x"}),
    Mistake(
        "a model that is not there",
        "download site-b/none -o x.dat",
        "site-b/none",
        (4,),
        {"POOL": "1"},
    ),
    Mistake(
        "a site that is not there",
        "rounds start --base site-a/eyes --sites site-a,site-q --deadline 7d",
        "site-q",
        (2, 4),
        {"POOL": "1"},
    ),
    Mistake(
        "a deadline in the past",
        "rounds start --base site-a/eyes --sites site-a,site-b --deadline 2020-01-01",
        "2020",
        (2,),
        {"POOL": "1"},
    ),
    Mistake(
        "a name with blanks", "upload eyes.dat --name 'my eyes'", "my eyes", (2,), {"POOL": "1"}
    ),
    Mistake("another's site", "upload eyes.dat --name site-b/eyes", "site-b", (3,), {"POOL": "1"}),
    Mistake(
        "annotations to the pool",
        "upload faces/faces.xml --name faces",
        "faces.xml",
        (2, 5, 6),
        {"POOL": "1"},
    ),
    Mistake(
        "a full disk",
        "merge wba-cascade eyes.dat other.dat -o m.dat",
        "space",
        (1, 2, 5),
        disk_full=True,
    ),
    Mistake(
        "Ctrl-C", "merge wba-cascade eyes.dat other.dat -o m.dat", "", (130,), interrupted=True
    ),
    Mistake("umlauts and blanks in names", "inspect 'grün é/mein modell.dat'", "mein modell", (0,)),
    Mistake("a byte order mark and decimal commas", TRACE.format("commas.csv"), "", (0,)),
    Mistake("a table of Windows", TRACE.format("utf16.csv"), "", (0,)),
)


def prepare(folder: Path) -> None:
    """Write the files that the mistakes name."""
    for name in ("empty", "pictures", "grün é"):
        (folder / name).mkdir()
    for letter in "ab":
        Image.new("RGB", (64, 48), (90, 90, 90)).save(folder / "pictures" / f"{letter}.png")
    for name in ("zero.mp4", "zero.dat", "zero.csv"):
        (folder / name).touch()
    write_model(make_predictor(1), folder / "eyes.dat")
    write_model(make_predictor(2), folder / "other.dat")
    write_model(make_predictor(3), folder / "five.dat")
    write_model(small_predictor(68), folder / "eyes-68.dat")
    write_model(make_detector(1), folder / "face.svm")
    shutil.copy(folder / "eyes.dat", folder / "taken.dat")
    shutil.copy(folder / "eyes.dat", folder / "grün é" / "mein modell.dat")
    (folder / "short.dat").write_bytes((folder / "eyes.dat").read_bytes()[:200])
    ear = np.full(300, 0.3)
    ear[60:66] = ear[200:206] = 0.05
    lines = ["ear", *(f"{value:.3f}" for value in ear)]
    timed = [f"{n / 30:.4f};{value:.3f}".replace(".", ",") for n, value in enumerate(ear)]
    texts = {
        "notes.mp4": "not a video\n",
        "ear.csv": "\n".join(lines),
        "words.csv": "ear\nopen\nshut\n",
        "columns.csv": "name;age\nanna;3\n",
        "commas.csv": "\ufeff" + "\n".join(["timestamp_s;ear", *timed]),
        "late.csv": "trial_type,cs_onset_s,us_onset_s\npaired,900,900.5\n",
        "odd.toml": "[network]\nlayers = 3\n",
        "other.xml": "<annotation><object/></annotation>\n",
        "broken.json": '{"images": [',
        "lost.xml": "<dataset><images><image file='gone.png'><box top='1' left='1' width='20' "
        "height='20'/></image></images></dataset>",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "utf16.csv").write_text("\n".join(lines), encoding="utf-16")
    write_face_dataset(folder / "faces", 6, image_size=(160, 160))
    for name in ("turned", "flipped"):
        shutil.copytree(folder / "faces", folder / name)
    for path in (folder / "turned").rglob("*.png"):
        picture = Image.open(path)
        exif = picture.getexif()
        exif[0x0112] = 6
        picture.save(path, exif=exif)
    for path in (folder / "flipped").rglob("*.png"):
        Image.open(path).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(path)
    xml = folder / "flipped" / "faces.xml"
    xml.write_text(_flipped(xml.read_text(encoding="utf-8"), 160), encoding="utf-8")


def _flipped(text: str, width: int) -> str:
    """Mirror parts and boxes of annotations, and forget to exchange left and right."""
    text = re.sub(
        r"<part([^>]*) x=.(-?\d+).", lambda m: f"<part{m[1]} x='{width - 1 - int(m[2])}'", text
    )
    return re.sub(
        r"left=.(-?\d+). width=.(\d+).",
        lambda m: f"left='{width - int(m[1]) - int(m[2])}' width='{m[2]}'",
        text,
    )


@contextmanager
def _troubles(mistake: Mistake) -> Iterator[None]:
    """Let writing fail as a full disk or Ctrl-C would."""

    def fail(*_: object, **__: object) -> None:
        if mistake.disk_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "m.dat")
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        if mistake.disk_full or mistake.interrupted:
            patch.setattr(whole_file.os, "replace", fail)
        yield


def make(mistake: Mistake, pool: PoolDriver) -> Outcome:
    """Make a mistake in the current folder; its answer."""
    environment = dict(mistake.environment)
    if environment.pop("POOL", ""):
        environment |= {
            "POOL_ENDPOINT": pool.url,
            "POOL_TOKEN": pool.secret("site-a", "contributor"),
        }
    elif "POOL_TOKEN" in environment:
        environment.setdefault("POOL_ENDPOINT", pool.url)
    arguments = shlex.split(mistake.command)
    with _troubles(mistake):
        return run_here(*arguments, **environment)


def fault_of(mistake: Mistake, answer: Outcome) -> str:
    """Return the fault of an answer; nothing if it is right."""
    text = (answer.err + answer.out).lower()
    if "traceback" in text or "--debug" in text:
        return "taken for a fault of the program"
    if answer.code not in mistake.codes:
        return f"exit code {answer.code}"
    if mistake.names.lower() not in " ".join(text.split()):
        return f"does not name {mistake.names!r}"
    if answer.code not in (0, 130) and not any(word in text for word in GUIDES):
        return "does not say what to do"
    return ""


def main(chosen: str = "") -> int:
    """Make the mistakes, print a table, and count the faults."""
    for name in [name for name in os.environ if name.startswith("POOL_")]:
        del os.environ[name]
    faults = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pool = stack.enter_context(pool_in_thread(folder / "pool", default_rights="download,merge"))
        os.environ |= {"POOL_HOME": str(folder / "home"), "NO_COLOR": "1", "COLUMNS": "100"}
        work = folder / "work"
        work.mkdir()
        prepare(work)
        upload(
            pool.member("site-a"),
            "site-a/eyes",
            (work / "eyes.dat").read_bytes(),
            file_name="e.dat",
        )
        pool.secret("site-b", "contributor")
        stack.callback(os.chdir, Path.cwd())
        os.chdir(work)
        for mistake in MISTAKES:
            if chosen not in mistake.name:
                continue
            answer = make(mistake, pool)
            shutil.rmtree("out", ignore_errors=True)
            fault = fault_of(mistake, answer)
            faults += bool(fault)
            hint = "hint" if "Hint:" in answer.err else "-"
            said = " ".join((answer.err or answer.out).split())[:400]
            verdict = f"BAD {fault}" if fault else "ok"
            print(f"{verdict} | {mistake.name} | {answer.code} | {hint} | {said}")
    print(f"{faults} of {len(MISTAKES)} answers are at fault")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
