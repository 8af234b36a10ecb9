// The page that uploads an archive: fingerprint first, then chunks, then the wait for its validation.
import { $, $$, pageData } from "./dom.js";
import { Refused, UploadApi } from "./upload-api.js";
import { Transfer } from "./upload-transfer.js";
import { left, refusal, size } from "./upload-words.js";

const POLL_MS = 1500;
const STATE_WORDS = { received: "Waits to be read", validating: "Being read", ready: "Ready", invalid: "Invalid" };
const STATE_TONES = { received: "queued", validating: "running", ready: "succeeded", invalid: "failed" };

class UploadPage {
  #transfer = null;
  #worker = null;
  #doomed = null; // the upload that the question before aborting is about; null: the one on the card

  constructor() {
    this.data = pageData("upload-data");
    this.form = $("[data-upload-form]");
    this.card = $("[data-progress-card]");
    this.api = new UploadApi(this.data.api, $("[name=csrfmiddlewaretoken]", this.form).value);
    this.file = $("[name=file]", this.form);
    this.file.addEventListener("change", () => this.#chosen());
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.#guard(() => this.#begin()); });
    for (const row of $$("[data-upload-row]")) this.#row(row);
    $("[data-pause]").addEventListener("click", () => this.#guard(() => this.#toggle()));
    $("[data-abort]").addEventListener("click", () => { this.#doomed = null; });
    $("[data-abort-now]").addEventListener("click", () => (this.#doomed ? this.#drop(this.#doomed) : this.#guard(() => this.#abort())));
    addEventListener("beforeunload", (event) => { if (this.#busy) event.preventDefault(); });
    if (location.hash.length > 1) $(`[data-upload-row="${CSS.escape(location.hash.slice(1))}"]`)?.classList.add("asked");
  }

  get #busy() { return ["hashing", "sending", "checking"].includes(this.card.dataset.phase); }

  #row(row) {
    const file = $("input[type=file]", row);
    $("[data-resume]", row).addEventListener("click", () => file.click());
    file.addEventListener("change", () => {
      const chosen = file.files[0];
      file.value = ""; // the same file may be chosen again, mended meanwhile
      if (this.#busy) this.#say("One upload at a time on this page: pause the other first, or wait for its end.");
      else this.#guard(() => this.#goOn(row.dataset.uploadRow, chosen));
    });
    $("[data-drop]", row).addEventListener("click", () => { this.#doomed = row.dataset.uploadRow; });
  }

  // Another one than that on the card: what is being sent goes on.
  async #drop(id) {
    $("#abort-dialog").close();
    try {
      await this.api.abort(id);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.#say(error.message);
      return;
    }
    if (this.card.hidden) location.reload(); // shows the space that is free now
    else this.#taken(id);
  }

  // Size and name are looked at before anything is read or sent.
  #chosen() {
    const file = this.file.files[0], fits = $("[data-fits]");
    this.#say("");
    if (!file) { fits.textContent = ""; return; }
    const wrong = refusal(file, this.data);
    $("[data-submit-upload]").disabled = Boolean(wrong);
    if (wrong) this.#say(wrong);
    fits.textContent = `${size(file.size)}${this.data.freeBytes === null ? "" : ` of ${size(this.data.freeBytes)} free`}`;
    const name = $("[name=name]", this.form);
    if (!name.value) name.value = file.name.replace(/\.zip$/i, "");
  }

  async #begin() {
    const file = this.file.files[0], fields = new FormData(this.form);
    if (!file) throw new Refused(422, { detail: "Choose a zip archive first." });
    const sha256 = await this.#fingerprint(file);
    const same = (await this.#underWay()).find((one) => one.sha256 === sha256 && one.size_bytes === file.size && one.name === fields.get("name"));
    const what = { name: fields.get("name"), size_bytes: file.size, sha256 };
    if (fields.get("derived_from")) what.derived_from = fields.get("derived_from");
    const upload = same ?? (await this.api.start(what));
    await this.#send(upload, file);
  }

  async #underWay() {
    const { results } = await this.api.get(`${this.data.api}?limit=200`);
    return results.filter((one) => one.state === "receiving");
  }

  // On another day, or after a reload: the same file, by its size at once and by its SHA-256 before a byte is sent.
  async #goOn(id, file) {
    if (!file) return;
    const upload = await this.api.read(id);
    if (file.size !== upload.size_bytes) throw new Refused(422, { detail: `This is another file: it has ${size(file.size)}, the upload ${size(upload.size_bytes)}. Choose the file it was started with.` });
    if ((await this.#fingerprint(file)) !== upload.sha256) throw new Refused(422, { detail: "This is another file: its size is the same, its content is not. Choose the file the upload was started with." });
    await this.#send(upload, file);
  }

  #fingerprint(file) {
    this.#phase("hashing", `Reading ${file.name}`);
    this.#worker?.terminate();
    const worker = (this.#worker = new Worker(new URL("./upload-worker.js", import.meta.url), { type: "module" }));
    return new Promise((resolve, reject) => {
      worker.onmessage = ({ data }) => {
        if (data.read !== undefined) this.#bar(data.read, file.size, `${size(data.read)} of ${size(file.size)} read`, "");
        if (data.sha256) resolve(data.sha256);
        if (data.fault) reject(new Refused(422, { detail: `The file cannot be read: ${data.fault}` }));
      };
      worker.onerror = () => reject(new Refused(422, { detail: "The file cannot be read here." }));
      worker.postMessage({ file });
    }).finally(() => worker.terminate());
  }

  async #send(upload, file) {
    this.upload = upload;
    history.replaceState(null, "", `#${upload.id}`);
    this.#taken(upload.id);
    this.#transfer = new Transfer(this.api, upload.id, file, {
      chunkBytes: this.data.chunkBytes,
      onProgress: (sent) => this.#sent(sent, file.size),
      onWait: (text) => this.#note(text),
    });
    await this.#run();
  }

  // The upload has its own card now.
  #taken(id) {
    const row = $(`[data-upload-row="${id}"]`), rest = row?.closest("section");
    row?.remove();
    if (rest && !$("[data-upload-row]", rest)) rest.remove();
  }

  async #run() {
    this.#phase("sending", `Uploading ${this.upload.name}`);
    if (await this.#transfer.run()) await this.#finish();
    else if (this.card.dataset.phase === "sending") this.#phase("paused", `Paused: ${this.upload.name}`);
  }

  async #toggle() {
    if (this.card.dataset.phase === "sending") this.#transfer.pause();
    else if (this.card.dataset.phase === "paused") await this.#run();
  }

  async #abort() {
    this.#phase("aborted", "Aborted");
    this.#transfer?.pause();
    this.#worker?.terminate();
    if (this.upload) await this.api.abort(this.upload.id);
    location.assign(location.pathname);
  }

  async #finish() {
    this.#phase("checking", "The server compares the fingerprint");
    this.#note("");
    const version = await this.api.complete(this.upload.id);
    history.replaceState(null, "", location.pathname);
    await this.#watch(version);
  }

  async #watch(version) {
    const page = `${this.data.page}${version.dataset}/?version=${version.number}`;
    for (let told = version; ; ) {
      this.#phase("done", `${told.name}, version ${told.number}`);
      this.#result(told, page);
      if (told.state === "ready" || told.state === "invalid") return;
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      told = await this.api.get(`${this.data.versions}/${version.id}`).catch((error) => { if (error.passes) return told; throw error; });
    }
  }

  #result(told, page) {
    const pill = $("[data-pill]"), tone = STATE_TONES[told.state];
    $("[data-result]").hidden = false;
    pill.className = `pill ${tone}`;
    $("use", pill).setAttribute("href", `#s-${tone}`);
    $("span", pill).textContent = STATE_WORDS[told.state];
    $("[data-reason]").textContent = told.state === "ready" ? `${told.summary.episodes.toLocaleString("en")} episodes, ${told.summary.frames.toLocaleString("en")} frames` : told.reason;
    $("[data-open-dataset]").href = page;
  }

  #sent(sent, total) {
    const { perSecond } = this.#transfer.rate;
    this.#note("");
    this.#bar(sent, total, `${size(sent)} of ${size(total)}`, perSecond > 0 ? `${size(perSecond)}/s, ${left((total - sent) / perSecond)}` : "");
  }

  #bar(done, total, text, rest) {
    const bar = $("[data-bar]");
    Object.assign(bar, { max: total, value: done });
    $("[data-done]").textContent = text;
    $("[data-rest]").textContent = rest;
  }

  #phase(phase, title) {
    this.card.hidden = false;
    this.card.dataset.phase = phase;
    $("[data-title]").textContent = title;
    this.form.hidden = true;
    this.#say("");
    const pause = $("[data-pause]");
    pause.hidden = phase !== "sending" && phase !== "paused";
    pause.textContent = phase === "paused" ? "Go on" : "Pause";
    $("[data-abort]").hidden = !["hashing", "sending", "paused"].includes(phase);
    $("[data-bar]").hidden = phase === "done";
    if (phase === "done") { $("[data-done]").textContent = ""; $("[data-rest]").textContent = ""; }
  }

  #note(text) {
    const note = $("[data-note]");
    note.hidden = !text;
    if (note.textContent !== text) note.textContent = text;
  }

  #say(text) {
    const fault = $("[data-fault]");
    fault.hidden = !text;
    $("[data-fault-text]").textContent = text;
  }

  async #guard(act) {
    try {
      await act();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (this.upload) this.#phase(["checking", "done"].includes(this.card.dataset.phase) ? "refused" : "paused", this.upload.name);
      else { this.card.hidden = true; this.card.dataset.phase = ""; this.form.hidden = false; }
      this.#say(error.status === 401 || error.status === 403 ? `${error.message} Log in again; what has arrived is kept.` : error.message);
    }
  }
}

new UploadPage();
