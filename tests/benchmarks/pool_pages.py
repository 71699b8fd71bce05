"""Time the catalogue's pages of a large pool, as a browser asks for them.

``python -m tests.benchmarks.pool_pages --versions 100000`` fills a pool on SQLite, logs in, and
prints for each kind of page the median, the 95th percentile and the bytes that travelled. The
exit status is 1 where a page takes longer than 100 ms (95 %) or weighs more than 30 kB.
"""

import argparse
import html
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

import httpx

from tests.benchmarks.large_pool import LargePool
from tests.benchmarks.pool_search import large_pool

LONGEST_MS = 100.0
MOST_BYTES = 30_000
DEEP_PAGES = 60
PAGES = {
    "newest": "/models",
    "one kind": "/models?kind=ert",
    "label": "/models?label=population%3Dinfant",
    "two labels": "/models?label=population%3Dadult&label=dataset_type%3Dclinic",
    "word": "/models?text=frontal",
    "by name": "/models?sort=name",
    "latest": "/models?latest=true&kind=network",
    "one site": "/models?site={site}",
    "rare camera": "/models?label=camera%3D{camera}",
    "fits with": "/models?mergeable_with={address}",
    "deep": "{deep}",
    "model": "/models/{address}",
    "lineage": "/models/{youngest}",
}


def log_in(url: str, secret: str) -> httpx.Client:
    """Return a client with the cookie of a session."""
    client = httpx.Client(base_url=url, timeout=60)
    field = re.search(r'name="csrf" value="([^"]+)"', client.get("/login").text)
    assert field is not None
    client.post("/login", data={"csrf": html.unescape(field[1]), "token": secret})
    return client


def follow(client: httpx.Client, pages: int) -> Iterator[str]:
    """Yield the addresses of pages that are further and further down the catalogue."""
    address = "/models"
    for _ in range(pages):
        link = re.search(r'href="([^"]+)" rel="next"', client.get(address).text)
        assert link is not None
        address = html.unescape(link[1])
        yield address


def time_pages(url: str, pool: LargePool, requests: int) -> bool:
    """Print a line for each kind of page; return whether all keep the limits."""
    site, secret = next((site, token) for site, token in pool.secrets.items() if site != "admin")
    client = log_in(url, secret)
    first = client.get("/models").text
    listed = re.findall(r'name="model" value="([^"]+)"', first)
    cameras = re.findall(r"label=camera%3D([^&\"]+)", first)
    deep = list(follow(client, DEEP_PAGES))
    chance, kept = random.Random(1), True
    for name, shape in PAGES.items():
        times, weight = [], 0
        for number in range(requests + 3):
            path = shape.format(
                site=site,
                address=chance.choice(listed),
                youngest=pool.youngest.split("//")[-1],
                camera=chance.choice(cameras),
                deep=chance.choice(deep),
            )
            started = perf_counter()
            with client.stream("GET", path) as answer:
                sent = sum(len(chunk) for chunk in answer.iter_raw())
            if answer.status_code != 200:
                sys.exit(f"{path}: {answer.status_code}")
            if number >= 3:
                times.append(1000 * (perf_counter() - started))
                weight = max(weight, sent)
        p95 = quantiles(times, n=20)[-1]
        kept &= p95 <= LONGEST_MS and weight <= MOST_BYTES
        print(f"{name:12} median {median(times):6.1f} ms  p95 {p95:6.1f} ms  {weight:7,} bytes")
    return kept


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--versions", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=40, help="of each kind of page")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as work,
        large_pool("sqlite", Path(work), arguments.versions) as (pool, url),
    ):
        kept = time_pages(url, pool, arguments.requests)
    print("within the limits" if kept else "BEYOND THE LIMITS")
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
