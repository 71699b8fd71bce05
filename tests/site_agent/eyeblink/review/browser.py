"""A real Chromium, driven through chromedriver by the WebDriver protocol: JSON over HTTP."""

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--window-size=1300,1000", "--hide-scrollbars"),
]
KEYS = {"Escape": "\ue00c", "Left": "\ue012", "Up": "\ue013", "Right": "\ue014", "Tab": "\ue004"}


def missing_browser() -> str:
    """Name the missing programs; empty where a browser can be driven."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        return "no chromium on this machine"
    return "" if shutil.which("chromedriver") else "no chromedriver on this machine"


class Browser:
    """One window."""

    def __init__(self, client: httpx.Client, session: str) -> None:
        self._client = client
        self._session = session

    def _do(self, method: str, path: str, **body: Any) -> Any:
        answer = self._client.request(
            method, f"/session/{self._session}/{path}", json=body if method == "POST" else None
        )
        value = answer.json()["value"]
        assert answer.is_success, value
        return value

    def open(self, url: str) -> None:
        self._do("POST", "url", url=url)

    def run(self, script: str) -> Any:
        """Return the value of JavaScript that ends with a return statement."""
        return self._do("POST", "execute/sync", script=script, args=[])

    def wait_for(self, condition: str, seconds: float = 20.0) -> Any:
        """Return the value of a JavaScript expression once it is true."""
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            value = self.run(f"return {condition}")
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"not true after {seconds} s: {condition}")

    def press(self, *names: str) -> None:
        """Press keys one after the other: characters, or names of `KEYS`."""
        presses = [
            {"type": kind, "value": KEYS.get(name, name)}
            for name in names
            for kind in ("keyDown", "keyUp")
        ]
        keyboard = {"type": "key", "id": "keyboard", "actions": presses}
        self._do("POST", "actions", actions=[keyboard])

    def set_width(self, width_px: int) -> None:
        """Show pages as on a screen of this width, 844 pixels high."""
        metrics = {"width": width_px, "height": 844, "deviceScaleFactor": 1, "mobile": False}
        command = "Emulation.setDeviceMetricsOverride"
        self._do("POST", "goog/cdp/execute", cmd=command, params=metrics)

    def problems(self) -> list[str]:
        """Return the errors in the browser's console."""
        entries = self._do("POST", "se/log", type="browser")
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]


@contextlib.contextmanager
def running_browser(profile: Path) -> Iterator[Browser]:
    """Start driver and browser while the block runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(
        ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=540)
    try:
        _wait_until_ready(client)
        capabilities = {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": [*FLAGS, f"--user-data-dir={profile}"]},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        answer = client.post("/session", json={"capabilities": {"alwaysMatch": capabilities}})
        session = answer.json()["value"]
        assert answer.is_success, session
        yield Browser(client, session["sessionId"])
        client.delete(f"/session/{session['sessionId']}")
    finally:
        client.close()
        driver.terminate()
        driver.wait()


def _wait_until_ready(client: httpx.Client) -> None:
    for _ in range(200):
        with contextlib.suppress(httpx.TransportError):
            if client.get("/status").json()["value"]["ready"]:
                return
        time.sleep(0.05)
    raise AssertionError("chromedriver does not answer")
