// Sizes, rates and times as the page of an upload says them.
const NBSP = "\u00a0";

export function size(bytes) {
  let value = bytes;
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (value < 1000 || unit === "TB") return unit === "B" ? `${value}${NBSP}B` : `${value.toFixed(1)}${NBSP}${unit}`;
    value /= 1000;
  }
}

export function left(seconds) {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 60) return `${Math.ceil(seconds)}${NBSP}s left`;
  const minutes = Math.ceil(seconds / 60);
  return minutes < 60 ? `${minutes}${NBSP}min left` : `${Math.floor(minutes / 60)}${NBSP}h ${minutes % 60}${NBSP}min left`;
}

// What stands in the way of a file before its first byte; "" if nothing does.
export function refusal(file, { maxBytes, freeBytes }) {
  if (!file.size) return "This file is empty.";
  if (!/\.zip$/i.test(file.name)) return "A zip archive of a LeRobot dataset is wanted; this file's name does not end in .zip.";
  if (file.size > maxBytes) return `An upload may have at most ${size(maxBytes)}; this file has ${size(file.size)}.`;
  if (freeBytes !== null && file.size > freeBytes) return `It does not fit: the file has ${size(file.size)}, ${size(freeBytes)} are free. Delete what is not needed, or ask an operator for more.`;
  return "";
}
