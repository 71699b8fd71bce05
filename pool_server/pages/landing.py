"""The page at ``/``: what this is, and what to type next."""

from __future__ import annotations

from html import escape


def landing_body(version: str, address: str) -> str:
    """Return the page's HTML.

    Parameters
    ----------
    address : str
        The pool's own address as the browser sees it.
    """
    commands = f"""\
poolctl auth login {address}
poolctl models ls --kind ert
poolctl upload MODEL_FILE --name SITE/NAME --label population=infant
poolctl download SITE/NAME"""
    letting_in = """\
poolctl admin sites create site-a
poolctl admin tokens create site-a laptop"""
    return f"""
<header><h1>A pool of face models</h1>
<p class="quiet">poolctl {escape(version)}</p></header>
<main>
<p>Sites share <strong>trained sub-models</strong> here: face detectors and landmark models, with
labels, scores and recipes. Images and videos stay where they were taken; this server has no
place for them.</p>
<h2>Begin</h2>
<p>On your own machine, with a token from this pool's admin:</p>
<pre>{escape(commands)}</pre>
<p>The one who started the pool was shown the first admin token once, in the terminal. With it:</p>
<pre>{escape(letting_in)}</pre>
<h2>More</h2>
<nav><a href="/docs">Addresses of this server</a><a href="/openapi.json">OpenAPI</a>
<a href="/readyz">Readiness</a></nav>
</main>
"""
