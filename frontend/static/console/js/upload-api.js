// What an upload asks of the API, with the page's session.

export class Refused extends Error {
  /** @param {number} status  @param {object} told the problem as the API says it */
  constructor(status, told) {
    const fields = (told?.errors ?? []).map((one) => one.detail);
    super(fields.length ? fields.join(" ") : told?.detail ?? `The server answered with ${status}.`);
    Object.assign(this, { status, told: told ?? {} });
  }

  // Nothing about the request is wrong: the same may succeed later.
  get passes() { return this.status === 0 || this.status === 429 || this.status >= 500; }
}

export class Lost extends Refused {
  constructor() {
    super(0, { detail: "The connection was lost." });
  }
}

const key = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

export class UploadApi {
  constructor(root, token) {
    Object.assign(this, { root, token });
  }

  start(what) { return this.#ask("POST", this.root, what); }
  read(id) { return this.#ask("GET", `${this.root}/${id}`); }
  abort(id) { return this.#ask("DELETE", `${this.root}/${id}`); }
  complete(id) { return this.#ask("POST", `${this.root}/${id}/complete`); }
  get(url) { return this.#ask("GET", url); }

  async #ask(method, url, body) {
    const headers = { Accept: "application/json", "X-CSRFToken": this.token };
    if (method === "POST") headers["Idempotency-Key"] = key();
    if (body) headers["Content-Type"] = "application/json";
    let answer;
    try {
      answer = await fetch(url, { method, headers, body: body && JSON.stringify(body) });
    } catch {
      throw new Lost();
    }
    const told = answer.status === 204 ? null : await answer.json().catch(() => null);
    if (!answer.ok) throw new Refused(answer.status, told);
    return told;
  }

  // One chunk; `onSent` gets the bytes of it that left. XMLHttpRequest, since fetch tells nothing on the way.
  append(id, offset, chunk, { onSent, signal }) {
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      request.open("PATCH", `${this.root}/${id}`);
      for (const [name, value] of Object.entries({ Accept: "application/json", "Content-Type": "application/octet-stream", "Upload-Offset": offset, "X-CSRFToken": this.token })) request.setRequestHeader(name, value);
      request.responseType = "json";
      request.timeout = 300_000;
      request.upload.onprogress = (event) => onSent(event.loaded);
      request.onload = () => (request.status < 300 ? resolve(request.response) : reject(new Refused(request.status, request.response)));
      request.onerror = request.ontimeout = () => reject(new Lost());
      request.onabort = () => reject(new DOMException("stopped", "AbortError"));
      signal.addEventListener("abort", () => request.abort(), { once: true });
      if (signal.aborted) reject(new DOMException("stopped", "AbortError"));
      else request.send(chunk);
    });
  }
}
