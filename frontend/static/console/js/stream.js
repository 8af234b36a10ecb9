// A job's rows over a WebSocket, by cursor: after a cut of any length the next connection goes on where this one
// stopped, so nothing is missing and nothing comes twice. A socket that is open but silent counts as cut.

const SILENCE_MS = 45_000; // the server pings every 20 s
const BACKOFF_MS = [500, 1000, 2000, 4000, 8000];
const FOR_GOOD = new Set([4400, 4403, 4404]);

export class JobStream {
  #socket = null;
  #timer = 0;
  #tries = 0;
  #ended = false;

  constructor({ id, after, onRows, onState }) {
    Object.assign(this, { id, cursor: after, onRows, onState });
    document.addEventListener("visibilitychange", () => { if (!document.hidden && !this.#socket) this.open(); });
  }

  open() {
    clearTimeout(this.#timer);
    if (this.#ended) return;
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/ws/jobs/${this.id}?after=${this.cursor}`);
    this.#socket?.close();
    this.#socket = socket;
    this.#watch();
    socket.onmessage = (message) => this.#receive(socket, JSON.parse(message.data));
    socket.onclose = (event) => { if (socket === this.#socket) this.#closed(event.code); };
  }

  end() {
    this.#ended = true;
    clearTimeout(this.#timer);
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    this.onState("ended");
  }

  #receive(socket, frame) {
    if (socket !== this.#socket) return;
    this.#tries = 0;
    this.#watch();
    this.onState("live");
    if (frame.type !== "rows") return;
    this.onRows(frame);
    this.cursor = Math.max(this.cursor, frame.seq);
  }

  #watch() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => { this.#socket?.close(); this.#closed(1006); }, SILENCE_MS);
  }

  #closed(code) {
    this.#socket = null;
    clearTimeout(this.#timer);
    if (this.#ended) return;
    if (FOR_GOOD.has(code)) { this.#ended = true; this.onState("ended"); return; }
    const wait = BACKOFF_MS[Math.min(this.#tries++, BACKOFF_MS.length - 1)];
    this.onState("reconnecting", wait);
    this.#timer = setTimeout(() => this.open(), wait);
  }
}

export function showState(badge, state, wait) {
  const text = { live: "Live", reconnecting: `Reconnecting in ${Math.ceil((wait ?? 0) / 1000)} s`, paused: "Paused", ended: "Ended" }[state];
  if (badge.dataset.state === state && badge.textContent === text) return;
  badge.dataset.state = state;
  badge.textContent = text;
}
