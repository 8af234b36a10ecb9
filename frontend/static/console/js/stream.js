// A job's rows, by cursor: after a cut of any length the next connection goes on where this one stopped, so nothing
// is missing and nothing comes twice.
import { Connection } from "./connection.js";

export { showState } from "./connection.js";

export class JobStream {
  #connection;

  constructor({ id, after, onRows, onState }) {
    this.cursor = after;
    const onFrame = (frame) => {
      if (frame.type !== "rows") return;
      onRows(frame);
      this.cursor = Math.max(this.cursor, frame.seq);
    };
    this.#connection = new Connection({ path: () => `/ws/jobs/${id}?after=${this.cursor}`, onFrame, onState });
  }

  open() { this.#connection.open(); }

  end() { this.#connection.end(); }
}
