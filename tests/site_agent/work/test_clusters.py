"""The files of the page on clusters run here; laws of shares that take minutes to show."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from site_agent.work.processes import stop
from tests.cli.vision.test_study import SETTINGS
from tests.site_agent.eyeblink.drawn_studies import write_study_files
from tests.site_agent.face_data import draw_faces
from tests.site_agent.work.shared_work import contents, count_log, start, work
from tests.slurm_cluster import SlurmCluster, is_there, slurm_cluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "site_agent" / "studies" / "README.md"
KILLS = 20


def block(first_line: str) -> str:
    """Return the block of the page that begins with a line."""
    text = PAGE.read_text()
    start_at = text.index(f"\n{first_line}") + 1
    return text[start_at : text.index("\n```", start_at)] + "\n"


@pytest.fixture(autouse=True)
def _command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``poolctl`` be that of this checkout."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a small study of landmarks."""
    for seed, (name, images) in enumerate({"faces": 12, "test": 4}.items()):
        made = draw_faces(tmp_path / name, images, images, seed, first_person=100 * seed)
        assert made == tmp_path / name / "faces.xml"
    (tmp_path / "settings.toml").write_text(SETTINGS)
    return tmp_path


def smaller(text: str) -> str:
    """Return commands of the page with settings for a small study."""
    small = "-o study/ --settings settings.toml --set orders=0 --set resamples=20"
    text = text.replace("faces.xml", "faces/faces.xml").replace("test.xml", "test/faces.xml")
    return text.replace("sites=6", "sites=2").replace("-o study/", small)


def results_of(study: Path) -> dict[str, bytes]:
    """Return all results of a study or batch, without the measured times in its tables."""
    return {
        path.relative_to(study).as_posix(): re.sub(_TOOK, b"", path.read_bytes())
        for path in sorted(study.rglob("*"))
        if path.suffix in {".csv", ".md", ".dat", ".png", ".xml"}
        and not path.relative_to(study).parts[0].startswith(".")
    }


def run_local(folder: Path) -> dict[str, bytes]:
    """Hold the page's study again with two processes; results name their folder."""
    (folder / "study").rename(folder / "shared")
    command = smaller(block("#!/bin/bash").splitlines()[-1]).replace("--share auto", "")
    subprocess.run(command, shell=True, cwd=folder, check=True, capture_output=True)
    return results_of(folder / "study")


@contextmanager
def background(*commands: Sequence[str]) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Run programs until the block ends."""
    with ExitStack() as stack:
        processes = []
        for command in commands:
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            stack.callback(stop, process, grace_s=10.0)
            processes.append(process)
        yield processes


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if not is_there():
        pytest.skip("no SLURM that can be started here: apt-get install slurm-wlm munge")
    with slurm_cluster(tmp_path_factory.mktemp("slurm") / "cluster") as cluster:
        yield cluster


def array_of_two(text: str) -> str:
    return text.replace("1-20", "1-2").replace("cpus-per-task=2", "cpus-per-task=1")


def test_an_array_of_slurm_gives_the_bytes_of_one_machine(
    folder: Path, slurm: SlurmCluster
) -> None:
    script = smaller(array_of_two(block("#!/bin/bash"))).replace("source .venv/bin/activate\n", "")
    (folder / "study.sbatch").write_text(script)
    print(slurm.submit(folder / "study.sbatch", folder))
    status = subprocess.run(
        ["poolctl", "status", "study"], cwd=folder, check=True, capture_output=True, text=True
    )
    print(status.stdout)
    results = results_of(folder / "study")
    assert len(results) > 10
    assert results == run_local(folder)


def test_an_array_of_slurm_analyses_a_batch(tmp_path: Path, slurm: SlurmCluster) -> None:
    table = write_study_files(tmp_path / "recordings", participants=3)
    command = f"poolctl blink batch {table} -o study/ --share auto --workers 1"
    (tmp_path / "batch.sbatch").write_text(f"#!/bin/bash\n#SBATCH --array=1-2\n{command}\n")
    print(slurm.submit(tmp_path / "batch.sbatch", tmp_path))
    local = command.replace("--share auto", "").replace("study/", "local/")
    subprocess.run(local, shell=True, cwd=tmp_path, check=True, capture_output=True)
    expected = results_of(tmp_path / "local")
    assert len(expected) > 20
    assert results_of(tmp_path / "study") == expected


def test_the_snakefile_of_the_page_runs(folder: Path, tmp_path: Path) -> None:
    snakemake = os.environ.get("POOLCTL_TEST_SNAKEMAKE") or shutil.which("snakemake")
    if not snakemake:
        pytest.skip("no Snakemake: install it into an environment of its own, and name its file "
                    "in POOLCTL_TEST_SNAKEMAKE")  # fmt: skip
    (folder / "Snakefile").write_text(
        smaller(block("COUNT = 20")).replace("COUNT = 20", "COUNT = 2")
    )
    run = subprocess.run(
        [snakemake, "--cores", "2", "--quiet"], cwd=folder, check=False, capture_output=True
    )
    assert run.returncode == 0, run.stderr
    results = results_of(folder / "study")
    assert results == run_local(folder)


def test_the_dask_commands_of_the_page_run(folder: Path) -> None:
    scheduler, worker, study = (
        line.partition(" #")[0].replace("srun -n 8 ", "").replace("head", "127.0.0.1")
        for line in block("dask scheduler").splitlines()
    )
    quiet = ["--no-dashboard"]
    with background(
        [*scheduler.split(), "--host", "127.0.0.1", *quiet], *[[*worker.split(), *quiet]] * 2
    ):
        subprocess.run(
            smaller(study), shell=True, cwd=folder, check=True, capture_output=True
        )  # fmt: skip
    results = results_of(folder / "study")
    assert results == run_local(folder)


_TOOK = rb"(?m), *[0-9.]+,\r?$|[0-9.]+ *\|$"
"""The last columns of table.csv and of table.md: seconds."""
SCHEDULER = "tcp://127.0.0.1:18786"


@pytest.mark.parametrize("killed", ["worker", "share", "client", "dask worker", "scheduler"])
def test_kills_at_random_moments_change_no_byte(killed: str, tmp_path: Path) -> None:
    """Print a table of them: moments, and steps that began twice."""
    draw = random.Random(killed)
    options = ("--steps", "10", "--seconds", "0.1")
    work(tmp_path / "expected", steps=10)
    expected = contents(tmp_path / "expected")
    print(f"\nkilled       after (s)   again   begun twice   ({KILLS} moments)")
    for number in range(KILLS):
        folder = tmp_path / str(number)
        delay_s = draw.uniform(0.0, 3.0)
        again = _kill_once(killed, folder, delay_s, options)
        assert contents(folder) == expected
        counts = count_log(folder)
        twice = sum(count - 1 for line, count in counts.items() if line.startswith("begun"))
        assert twice <= (2 if killed == "scheduler" else 1), "one for each worker that was lost"
        print(f"{killed:12} {delay_s:9.2f}   {again:5}   {twice:11}")


def _kill_once(killed: str, folder: Path, delay_s: float, options: Sequence[str]) -> int:
    """Kill one process after a time; return how often the work had to be started again."""

    def run_until_done(*more: str) -> int:
        for count in range(10):
            process = start(folder, *options, *more)
            process.communicate()
            if (folder / "table.csv").exists():
                return count
        raise AssertionError("it does not end")

    def begun() -> bool:
        return (folder / "log").exists()

    if killed in ("dask worker", "scheduler"):
        dask = [sys.executable, "-m", "dask"]
        quiet = ["--no-dashboard"]
        scheduler = [*dask, "scheduler", "--host", "127.0.0.1", "--port", "18786", *quiet]
        worker = [*dask, "worker", SCHEDULER, "--nthreads", "1", "--no-nanny", *quiet]
        with background(scheduler, worker, worker) as (head, first, second):
            client = start(folder, *options, "--workers", SCHEDULER)
            wait_until(begun)
            time.sleep(delay_s / 3)
            (head if killed == "scheduler" else first).send_signal(signal.SIGKILL)
            client.communicate()
        return 0 if (folder / "table.csv").exists() else 1 + run_until_done()
    if killed == "share":
        first, second = (start(folder, *options, "--share", f"{part}/2") for part in (1, 2))
        wait_until(begun)
        time.sleep(delay_s / 3)
        first.kill()
        first.communicate()
        second.communicate()
        return 0 if (folder / "table.csv").exists() else 1 + run_until_done("--share", "1/2")
    client = start(folder, *options)
    wait_until(begun)
    time.sleep(delay_s / 3)
    if killed == "client":
        client.kill()
        client.communicate()
    else:
        with suppress(psutil.NoSuchProcess):  # it may have ended already
            for child in psutil.Process(client.pid).children():
                child.kill()
        client.communicate()
    return 0 if (folder / "table.csv").exists() else 1 + run_until_done()


def test_ten_thousand_short_jobs_are_shared_out(tmp_path: Path) -> None:
    """Print the time that the folder costs for each step."""
    steps, seconds = 10_000, 0.01
    options = ("--steps", str(steps), "--seconds", str(seconds))
    processes = [start(tmp_path, *options, "--share", f"{part}/2") for part in (1, 2)]
    began_s = time.monotonic()
    for process in processes:
        process.communicate()
    took_s = time.monotonic() - began_s
    counts = count_log(tmp_path)
    assert set(counts.values()) == {1}
    assert (tmp_path / "table.csv").exists()
    each_ms = 1000 * (2 * took_s / steps - seconds)
    print(f"\n{steps} steps of {seconds * 1000:.0f} ms by 2 shares: {took_s:.0f} s, ", end="")
    print(f"{each_ms:.1f} ms a step and share on top of its work")


@pytest.mark.skipif(not shutil.which("faketime"), reason="needs faketime")
def test_a_share_with_another_clock_takes_over_nothing_that_lives(tmp_path: Path) -> None:
    options = ("--steps", "12", "--seconds", "0.5", "--host")
    shares = [start(tmp_path, *options, "here", "--share", "1/2")]
    wait_until((tmp_path / "log").exists)
    command = ["faketime", "-f", "+2h", sys.executable, *shares[0].args[1:]]  # type: ignore[index]
    command = [word.replace("here", "there").replace("1/2", "2/2") for word in command]
    shares.append(subprocess.Popen(command, stderr=subprocess.PIPE))
    for share in shares:
        _, complaints = share.communicate()
        assert share.returncode == 0, complaints
    assert set(count_log(tmp_path).values()) == {1}
    assert (tmp_path / "table.csv").exists()


def test_shares_of_a_simulation_give_the_networks_of_one(tmp_path: Path) -> None:
    draw = "poolctl dataset draw eyes eyes --set persons=4 --set frames_per_person=40"
    hold = "poolctl federated simulate eyes --method fedadam --method fedper --rounds 2 -o "
    subprocess.run(draw, shell=True, cwd=tmp_path, check=True, capture_output=True)
    shares = [
        subprocess.Popen(
            f"{hold} shared --workers 1 --share {number}/2", shell=True, cwd=tmp_path,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for number in (1, 2)
    ]  # fmt: skip
    assert [share.wait() for share in shares] == [0, 0]
    subprocess.run(f"{hold} local", shell=True, cwd=tmp_path, check=True, capture_output=True)

    def networks(run: str) -> dict[str, bytes]:
        files = sorted((tmp_path / run).glob("*/*.safetensors"))
        return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in files}

    assert len(networks("local")) == 4
    assert networks("shared") == networks("local")
    histories = [tmp_path / run / "fedper" / "history.json" for run in ("shared", "local")]
    assert histories[0].read_bytes() == histories[1].read_bytes()
