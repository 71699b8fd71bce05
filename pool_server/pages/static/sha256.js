// SHA-256 of a file in pieces (FIPS 180-4), in a worker: `crypto.subtle` takes whole files only,
// and is missing without TLS.
"use strict";

const PIECE_BYTES = 4 * 1024 * 1024;
const primes = [];
for (let n = 2; primes.length < 64; n++) if (primes.every((p) => n % p)) primes.push(n);
const fraction = (x) => ((x - Math.floor(x)) * 2 ** 32) | 0;
const K = Int32Array.from(primes, (p) => fraction(Math.cbrt(p)));
const W = new Int32Array(64);

function hashBlocks(state, bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at < bytes.length; at += 64) {
    for (let i = 0; i < 16; i++) W[i] = view.getInt32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const x = W[i - 15], y = W[i - 2];
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      W[i] = (W[i - 16] + s0 + W[i - 7] + s1) | 0;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i++) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const one = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + W[i]) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const two = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g; g = f; f = e; e = (d + one) | 0; d = c; c = b; b = a; a = (one + two) | 0;
    }
    [a, b, c, d, e, f, g, h].forEach((word, i) => { state[i] = (state[i] + word) | 0; });
  }
}

onmessage = async ({ data: file }) => {
  const state = Int32Array.from(primes.slice(0, 8), (p) => fraction(Math.sqrt(p)));
  let at = 0;
  for (; file.size - at >= PIECE_BYTES; at += PIECE_BYTES) {
    hashBlocks(state, new Uint8Array(await file.slice(at, at + PIECE_BYTES).arrayBuffer()));
    postMessage({ done: at / file.size });
  }
  const rest = new Uint8Array(await file.slice(at).arrayBuffer());
  const end = new Uint8Array(Math.ceil((rest.length + 9) / 64) * 64);
  end.set(rest);
  end[rest.length] = 0x80;
  new DataView(end.buffer).setBigUint64(end.length - 8, BigInt(file.size) * 8n);
  hashBlocks(state, end);
  const hex = Array.from(state, (word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
  postMessage({ digest: hex });
};
