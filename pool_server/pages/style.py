"""The look of the pages, and the policy that lets browsers load nothing else."""

from __future__ import annotations

import base64
import hashlib
from html import escape

from fastapi.responses import HTMLResponse

STYLE = """
:root { color-scheme: light dark; --edge: color-mix(in srgb, CanvasText 18%, Canvas);
  --soft: color-mix(in srgb, CanvasText 6%, Canvas); --accent: light-dark(#0b5cad, #8cc2ff); }
body { font: 1rem/1.55 system-ui, sans-serif; max-width: 54rem; margin: 0 auto;
  padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; }
a { color: var(--accent); } .quiet { opacity: .72; }
pre, code { font: .92em/1.5 ui-monospace, monospace; }
pre { background: var(--soft); border: 1px solid var(--edge); border-radius: .5rem;
  padding: .8rem 1rem; overflow-x: auto; }
details { border: 1px solid var(--edge); border-radius: .5rem; margin: .5rem 0; }
summary { cursor: pointer; padding: .55rem .9rem; } details > div { padding: 0 .9rem .9rem; }
.method { display: inline-block; min-width: 4.2rem; font: 600 .85rem ui-monospace, monospace;
  color: var(--accent); }
table { border-collapse: collapse; width: 100%; font-size: .93rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .7rem .35rem 0;
  border-bottom: 1px solid var(--edge); }
th { font-weight: 600; }
nav a { margin-right: 1.2rem; }
"""

_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def page(title: str, body: str) -> HTMLResponse:
    """Return a page; `body` is HTML whose texts are escaped already."""
    return HTMLResponse(
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body>{body}</body></html>",
        headers={"content-security-policy": POLICY, "cache-control": "no-cache"},
    )
