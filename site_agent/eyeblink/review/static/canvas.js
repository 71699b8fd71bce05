// Canvases that are sharp on any screen, and colours of the theme.
export function prepare(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  const wide = Math.max(1, Math.round(width * ratio)), tall = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== wide || canvas.height !== tall) { canvas.width = wide; canvas.height = tall; }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}

// Custom properties hold light-dark(); only a used colour is resolved for the theme.
const probe = document.createElement("span");
let known = new Map();
export function colour(name) {
  if (!known.has(name)) {
    if (!probe.isConnected) { probe.hidden = true; document.body.append(probe); }
    probe.style.color = `var(--${name})`;
    known.set(name, getComputedStyle(probe).color);
  }
  return known.get(name);
}

export function redrawOnChange(canvases, draw) {
  const watcher = new ResizeObserver(draw);
  for (const canvas of canvases) watcher.observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { known = new Map(); draw(); });
}

export function hatch(pen, left, top, width, height) {
  pen.save();
  pen.beginPath();
  pen.rect(left, top, width, height);
  pen.clip();
  pen.strokeStyle = colour("quiet");
  pen.globalAlpha = 0.55;
  pen.lineWidth = 1;
  pen.beginPath();
  for (let x = left - height; x < left + width; x += 6) { pen.moveTo(x, top + height); pen.lineTo(x + height, top); }
  pen.stroke();
  pen.restore();
}
