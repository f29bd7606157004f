// Makes the screenshots small: a PNG with a palette of the 256 most frequent colours needs about a third of the bytes.
import { crc32, deflateSync, inflateSync } from "node:zlib";

/** small returns an opaque PNG of 8 bits per channel, as Chromium writes it, as a PNG with a palette. */
export function small(png) {
  const { width, height, channels, pixels } = decode(png);
  const counts = new Map();
  for (let i = 0; i < pixels.length; i += channels) {
    const c = (pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2];
    counts.set(c, (counts.get(c) ?? 0) + 1);
  }
  const palette = [...counts]
    .sort((a, b) => weight(b) - weight(a))
    .slice(0, 256)
    .map(([c]) => c);
  const known = new Map(palette.map((c, i) => [c, i]));
  const rows = Buffer.alloc(height * (width + 1));
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const i = (y * width + x) * channels;
      const c = (pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2];
      if (!known.has(c)) known.set(c, nearest(palette, c));
      rows[y * (width + 1) + 1 + x] = known.get(c);
    }
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 3, 0, 0, 0], 8);
  return Buffer.concat([
    png.subarray(0, 8),
    chunk("IHDR", head),
    chunk("PLTE", Buffer.from(palette.flatMap((c) => [c >> 16, (c >> 8) & 255, c & 255]))),
    chunk("IDAT", deflateSync(rows, { level: 9 })),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

/** weight prefers the colours of states, which are rare and must not turn grey. */
function weight([c, count]) {
  const channels = [c >> 16, (c >> 8) & 255, c & 255];
  return count * (1 + (Math.max(...channels) - Math.min(...channels)) / 8);
}

function nearest(palette, c) {
  const far = (p) =>
    ((p >> 16) - (c >> 16)) ** 2 + (((p >> 8) & 255) - ((c >> 8) & 255)) ** 2 + ((p & 255) - (c & 255)) ** 2;
  let best = 0;
  for (let i = 1; i < palette.length; i++) if (far(palette[i]) < far(palette[best])) best = i;
  return best;
}

function chunk(type, data) {
  const out = Buffer.alloc(data.length + 12);
  out.writeUInt32BE(data.length, 0);
  out.write(type, 4, "latin1");
  data.copy(out, 8);
  out.writeUInt32BE(crc32(out.subarray(4, data.length + 8)), data.length + 8);
  return out;
}

/** decode undoes the filters of the rows. */
function decode(png) {
  const width = png.readUInt32BE(16);
  const height = png.readUInt32BE(20);
  const channels = { 2: 3, 6: 4 }[png[25]];
  if (png[24] !== 8 || !channels || png[28] !== 0) throw new Error("the PNG has another format than a screenshot");
  const parts = [];
  for (let at = 8; at < png.length;) {
    const length = png.readUInt32BE(at);
    if (png.toString("latin1", at + 4, at + 8) === "IDAT") parts.push(png.subarray(at + 8, at + 8 + length));
    at += length + 12;
  }
  const raw = inflateSync(Buffer.concat(parts));
  const line = width * channels;
  const pixels = Buffer.alloc(line * height);
  for (let y = 0; y < height; y++) {
    const filter = raw[y * (line + 1)];
    for (let x = 0; x < line; x++) {
      const at = y * line + x;
      const left = x >= channels ? pixels[at - channels] : 0;
      const up = y > 0 ? pixels[at - line] : 0;
      const corner = x >= channels && y > 0 ? pixels[at - line - channels] : 0;
      pixels[at] = raw[y * (line + 1) + 1 + x] + guess(filter, left, up, corner);
    }
  }
  return { width, height, channels, pixels };
}

function guess(filter, left, up, corner) {
  if (filter === 0) return 0;
  if (filter === 1) return left;
  if (filter === 2) return up;
  if (filter === 3) return (left + up) >> 1;
  const p = left + up - corner;
  const [a, b, c] = [Math.abs(p - left), Math.abs(p - up), Math.abs(p - corner)];
  return a <= b && a <= c ? left : b <= c ? up : corner;
}
