// A WebSocket that is opened again until it is ended: after a cut with a growing pause, after a while in a hidden tab
// at once. A socket that is open but silent counts as cut. What to go on from is in the address, so the owner keeps
// the cursor and nothing is missed.

const SILENCE_MS = 45_000; // the server pings every 20 s
const BACKOFF_MS = [500, 1000, 2000, 4000, 8000];
const FOR_GOOD = new Set([4400, 4403, 4404]);

export class Connection {
  #socket = null;
  #timer = 0;
  #tries = 0;
  #ended = false;

  /**
   * @param {{path: () => string, onFrame: (frame: object) => void, onState: (state: string, wait?: number) => void}} own
   *   `path` with the cursor of now; `onState` gets "live", "reconnecting" with milliseconds left, "paused" or "ended".
   */
  constructor({ path, onFrame, onState }) {
    Object.assign(this, { path, onFrame, onState });
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#pause() : this.#resume()));
    addEventListener("online", () => this.#resume());
    addEventListener("pageshow", (event) => { if (event.persisted) this.#resume(); });
  }

  open() {
    clearTimeout(this.#timer);
    if (this.#ended) return;
    if (document.hidden) { this.onState("paused"); return; }
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}${this.path()}`);
    this.#drop();
    this.#socket = socket;
    this.#watch();
    socket.onmessage = (message) => this.#receive(socket, JSON.parse(message.data));
    socket.onclose = (event) => { if (socket === this.#socket) this.#closed(event.code); };
  }

  end() {
    this.#ended = true;
    clearTimeout(this.#timer);
    this.#drop();
    this.onState("ended");
  }

  #receive(socket, frame) {
    if (socket !== this.#socket) return;
    this.#tries = 0;
    this.#watch();
    this.onState("live");
    if (frame.type !== "ping") this.onFrame(frame);
  }

  #watch() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => { this.#drop(); this.#closed(1006); }, SILENCE_MS);
  }

  #closed(code) {
    this.#socket = null;
    clearTimeout(this.#timer);
    if (this.#ended) return;
    if (FOR_GOOD.has(code)) { this.#ended = true; this.onState("ended"); return; }
    this.#countDown(performance.now() + BACKOFF_MS[Math.min(this.#tries++, BACKOFF_MS.length - 1)]);
  }

  #countDown(due) {
    const left = due - performance.now();
    if (left <= 0) { this.open(); return; }
    this.onState("reconnecting", left);
    this.#timer = setTimeout(() => this.#countDown(due), Math.min(left, 1000));
  }

  #pause() {
    if (this.#ended) return;
    clearTimeout(this.#timer);
    this.#drop();
    this.onState("paused");
  }

  #resume() {
    if (!this.#socket) { this.#tries = 0; this.open(); }
  }

  #drop() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }
}

export function showState(badge, state, wait) {
  const text = { live: "Live", reconnecting: `Reconnecting in ${Math.ceil((wait ?? 0) / 1000)} s`, paused: "Paused", ended: "Ended" }[state];
  if (badge.dataset.state === state && badge.textContent === text) return;
  badge.dataset.state = state;
  badge.textContent = text;
}
