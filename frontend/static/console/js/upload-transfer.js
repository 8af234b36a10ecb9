// Sends a file's bytes from where the server is, chunk by chunk; goes on by itself after a lost connection.
import { Refused } from "./upload-api.js";

const RATE_WINDOW_S = 12; // the rate is that of the last seconds
const WAIT_MAX_S = 30;

// Bytes per second over a moving window.
export class Rate {
  #marks = [];

  add(bytes, now = performance.now()) {
    this.#marks.push([now, bytes]);
    while (this.#marks.length > 2 && now - this.#marks[0][0] > RATE_WINDOW_S * 1000) this.#marks.shift();
  }

  clear() { this.#marks = []; }

  get perSecond() {
    const first = this.#marks[0], last = this.#marks.at(-1);
    return this.#marks.length > 1 && last[0] > first[0] ? ((last[1] - first[1]) / (last[0] - first[0])) * 1000 : 0;
  }
}

export class Transfer {
  #stop = null;
  rate = new Rate();

  /** @param {(sent: number) => void} onProgress  @param {(text: string) => void} onWait said while the connection is away */
  constructor(api, id, file, { chunkBytes, onProgress, onWait }) {
    Object.assign(this, { api, id, file, chunkBytes, onProgress, onWait });
  }

  pause() { this.#stop?.abort(); }

  // True when every byte is there, false when it was paused. Throws Refused for what waiting does not mend.
  async run() {
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    this.rate.clear();
    let offset = null, failures = 0;
    while (!signal.aborted) {
      try {
        offset ??= (await this.api.read(this.id)).offset;
        this.#tell(offset);
        if (offset >= this.file.size) return true;
        offset = await this.#chunk(offset, signal);
        failures = 0;
      } catch (error) {
        if (signal.aborted) return false;
        if (!(error instanceof Refused)) throw error;
        const moved = error.status === 409 && ["offset-mismatch", "upload-busy"].some((code) => error.told.type?.endsWith(code));
        if (!error.passes && !moved) throw error;
        offset = null; // the server says where it is
        await this.#wait(Math.min(2 ** failures++, WAIT_MAX_S), error, signal);
      }
    }
    return false;
  }

  async #chunk(offset, signal) {
    const chunk = this.file.slice(offset, offset + this.chunkBytes);
    const told = await this.api.append(this.id, offset, chunk, { signal, onSent: (bytes) => this.#tell(offset + Math.min(bytes, chunk.size)) });
    return told.offset;
  }

  #tell(sent) {
    this.rate.add(sent);
    this.onProgress(sent);
  }

  async #wait(seconds, error, signal) {
    for (let left = seconds; left > 0 && !signal.aborted; left--) {
      this.onWait(`${error.message} Tries again in ${left} s.`);
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, 1000);
        signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
      });
    }
    this.rate.clear();
  }
}
