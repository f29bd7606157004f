// Fails if the first load is over its budget: the compressed size of the page, its script with static imports, its styles, and
// the additional files of the largest page. Code editors are loaded later and are not counted.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const budget = 250 * 1024;
const dist = new URL("../dist/", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL("manifest.json", dist), "utf8"));

const bytes = new Map();
const weigh = (file) => {
  if (!bytes.has(file)) bytes.set(file, gzipSync(readFileSync(new URL(file, dist)), { level: 9 }).length);
  return bytes.get(file);
};
const filesOf = (key, into = new Set()) => {
  const chunk = manifest[key];
  if (into.has(chunk.file)) return into;
  into.add(chunk.file);
  for (const css of chunk.css ?? []) into.add(css);
  for (const next of chunk.imports ?? []) filesOf(next, into);
  return into;
};

const entry = Object.keys(manifest).find((key) => manifest[key].isEntry);
let worst = 0;
for (const key of [entry, ...manifest[entry].dynamicImports]) {
  const files = new Set([...filesOf(entry), ...filesOf(key)]);
  const sum = [...files].reduce((total, file) => total + weigh(file), weigh("index.html"));
  console.log(`${(sum / 1024).toFixed(1).padStart(7)} KB  ${key}`);
  worst = Math.max(worst, sum);
}
if (worst > budget) {
  console.error(`the first load is over its budget of ${budget / 1024} KB`);
  process.exit(1);
}
