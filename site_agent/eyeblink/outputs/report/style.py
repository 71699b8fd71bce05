"""How the report looks: on light and dark screens and on paper."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #ffffff; --soft: #5c5c5c;
  --faint: #dcdcdc; --panel: #f4f4f2; --one: #0b5394; --two: #9c4a00; --three: #3d6b1f;
  --warn: #7a3b00; --warnback: #fff3e0; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececec; --paper: #17181a; --soft: #b0b0b0;
  --faint: #3a3c40; --panel: #212327; --one: #8cc2ff; --two: #ffb870; --three: #a9d98a;
  --warn: #ffcf9e; --warnback: #3a2a17; } }
* { box-sizing: border-box; }
html { background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
body { max-width: 1100px; margin: 0 auto; padding: 24px 20px 60px; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 40px 0 8px; padding-top: 10px; border-top: 1px solid var(--faint); }
h3 { font-size: 1rem; margin: 20px 0 4px; }
p { margin: 6px 0; max-width: 75ch; } .soft, figcaption { color: var(--soft); }
nav a { margin-right: 14px; } a { color: var(--one); }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 10px;
  margin: 18px 0; padding: 0; list-style: none; }
.tiles li { background: var(--panel); border-radius: 6px; padding: 10px 12px; }
.tiles b { display: block; font-size: 1.35rem; line-height: 1.2; }
.tiles span { color: var(--soft); font-size: .85rem; }
.warnings { background: var(--warnback); border-left: 4px solid var(--warn);
  border-radius: 0 6px 6px 0;
  padding: 10px 16px; } .warnings ul { margin: 4px 0; padding-left: 20px; }
figure { margin: 10px 0; overflow-x: auto; } svg.plot, figcaption { break-inside: avoid; }
figcaption { font-size: .88rem; max-width: 80ch; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 3px 10px 3px 0; border-bottom: 1px solid var(--faint);
  vertical-align: top; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; } .words { text-align: left; }
td.words { white-space: normal; min-width: 5.5em; }
td.wrap { white-space: normal; overflow-wrap: anywhere; text-align: left; }
summary { cursor: pointer; color: var(--one); margin: 8px 0; }
code { font: .85em ui-monospace, Consolas, Menlo, monospace; overflow-wrap: anywhere; }
svg.plot { max-width: 100%; height: auto; display: block; background: #fff; }
@media print { :root { --ink: #000; --paper: #fff; --soft: #444; --faint: #ccc; --panel: #f4f4f4;
  --one: #0b5394; --two: #9c4a00; --three: #3d6b1f; --warn: #7a3b00; --warnback: #fff; }
  nav, summary { display: none; } figure, .scroll { overflow: visible; }
  body { max-width: none; padding: 0; } html { font-size: 12px; }
  h2 { break-after: avoid; } tr { break-inside: avoid; } thead { display: table-header-group; } }
"""
