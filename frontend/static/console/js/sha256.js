// SHA-256 in pieces (FIPS 180-4): the browser's own digest wants the whole file in memory at once.
// Signed words: engines keep those as whole numbers, unsigned ones as floating point.
const K = new Int32Array(64);
const START = new Int32Array(8);

// The first 32 bits of the fractional parts of the roots of the first primes.
(function constants() {
  const bits = (x) => ((x - Math.floor(x)) * 2 ** 32) | 0;
  for (let n = 2, found = 0; found < 64; n++) {
    let prime = true;
    for (let d = 2; d * d <= n; d++) if (n % d === 0) prime = false;
    if (!prime) continue;
    if (found < 8) START[found] = bits(Math.sqrt(n));
    K[found++] = bits(Math.cbrt(n));
  }
})();

const turned = (x, by) => (x >>> by) | (x << (32 - by));

export class Sha256 {
  #state = START.slice();
  #words = new Int32Array(64);
  #rest = new Uint8Array(64);
  #kept = 0; // bytes in #rest
  #total = 0;

  /** @param {Uint8Array} bytes */
  update(bytes) {
    this.#total += bytes.length;
    let at = 0;
    if (this.#kept) {
      at = Math.min(64 - this.#kept, bytes.length);
      this.#rest.set(bytes.subarray(0, at), this.#kept);
      this.#kept += at;
      if (this.#kept < 64) return this;
      block(this.#state, this.#words, this.#rest, 0);
      this.#kept = 0;
    }
    for (; at + 64 <= bytes.length; at += 64) block(this.#state, this.#words, bytes, at);
    this.#rest.set(bytes.subarray(at));
    this.#kept = bytes.length - at;
    return this;
  }

  hex() {
    const bits = this.#total * 8, padded = new Uint8Array(this.#kept < 56 ? 64 - this.#kept : 128 - this.#kept), view = new DataView(padded.buffer);
    padded[0] = 0x80;
    view.setUint32(padded.length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(padded.length - 4, bits >>> 0);
    this.update(padded);
    return [...this.#state].map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
  }
}

function block(state, w, bytes, start) {
  let at = start;
  for (let i = 0; i < 16; i++, at += 4) w[i] = (bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3];
  for (let i = 16; i < 64; i++) {
    const x = w[i - 15], y = w[i - 2];
    w[i] = (w[i - 16] + (turned(x, 7) ^ turned(x, 18) ^ (x >>> 3)) + w[i - 7] + (turned(y, 17) ^ turned(y, 19) ^ (y >>> 10))) | 0;
  }
  let a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
  for (let i = 0; i < 64; i++) {
    const t1 = (h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
    const t2 = ((turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g; g = f; f = e; e = (d + t1) | 0; d = c; c = b; b = a; a = (t1 + t2) | 0;
  }
  state[0] += a; state[1] += b; state[2] += c; state[3] += d; state[4] += e; state[5] += f; state[6] += g; state[7] += h;
}
