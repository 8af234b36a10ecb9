// Reads a file beside the page and tells its SHA-256: {file} in; {read} as it goes, then {sha256} or {fault} out.
import { Sha256 } from "./sha256.js";

const PIECE_BYTES = 4 * 2 ** 20;

onmessage = async ({ data: { file } }) => {
  const hash = new Sha256();
  try {
    for (let at = 0; at < file.size; at += PIECE_BYTES) {
      hash.update(new Uint8Array(await file.slice(at, at + PIECE_BYTES).arrayBuffer()));
      postMessage({ read: Math.min(at + PIECE_BYTES, file.size) });
    }
    postMessage({ sha256: hash.hex() });
  } catch (error) {
    postMessage({ fault: String(error.message ?? error) });
  }
};
