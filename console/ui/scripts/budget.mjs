// Fails if the first load is over its budget: the compressed size of the page, its script with static imports, its styles, the
// larger dictionary, and the additional files of the largest page. Code editors are loaded later and are not counted. It
// also fails if the styles of a component of Mantine are missing.
import { readdirSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const budget = 250 * 1024;
const dist = new URL("../dist/", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL("manifest.json", dist), "utf8"));

const bytes = new Map();
const weigh = (file) => {
  if (!bytes.has(file)) bytes.set(file, gzipSync(readFileSync(new URL(file, dist)), { level: 9 }).length);
  return bytes.get(file);
};
const sum = (files) => [...files].reduce((total, file) => total + weigh(file), 0);
const filesOf = (key, into = new Set()) => {
  const chunk = manifest[key];
  if (into.has(chunk.file)) return into;
  into.add(chunk.file);
  for (const css of chunk.css ?? []) into.add(css);
  for (const next of chunk.imports ?? []) filesOf(next, into);
  return into;
};

const chunkOf = new Map(Object.values(manifest).map((chunk) => [chunk.file, chunk]));
const entry = Object.keys(manifest).find((key) => manifest[key].isEntry);
const shared = filesOf(entry);
const own = (key) => [...filesOf(key)].filter((file) => !shared.has(file));
const later = [...shared].flatMap((file) => chunkOf.get(file)?.dynamicImports ?? []);
const isDictionary = (key) => key.startsWith("src/i18n/");
const dictionaries = later.filter(isDictionary);
if (dictionaries.length < 2) throw new Error("the dictionaries are not loaded on their own");
const always = weigh("index.html") + sum(shared) + Math.max(...dictionaries.map((key) => sum(own(key))));
let worst = always;
const print = (size, name) => console.log(`${(size / 1024).toFixed(1).padStart(7)} KB  ${name}`);
print(always, entry);
for (const key of later.filter((key) => !isDictionary(key))) {
  const size = always + sum(own(key));
  print(size, key);
  worst = Math.max(worst, size);
}
if (worst > budget) {
  console.error(`the first load is over its budget of ${budget / 1024} KB`);
  process.exitCode = 1;
}

// Each component of Mantine has its own class names.
const mantine = new URL("../node_modules/@mantine/", import.meta.url);
const classes = (text) => new Set(text.match(/\bm_[0-9a-f]{4,8}\b/g));
const assets = new URL("assets/", dist);
const built = (type) =>
  readdirSync(assets)
    .filter((file) => file.endsWith(type))
    .map((file) => readFileSync(new URL(file, assets), "utf8"))
    .join("\n");
const [used, styled] = [classes(built(".js")), classes(built(".css"))];
for (const name of ["core", "notifications"])
  for (const style of classes(readFileSync(new URL(`${name}/styles.css`, mantine), "utf8")))
    if (used.has(style) && !styled.has(style)) {
      console.error(`src/styles/mantine.css lacks the component with the class ${style}`);
      process.exitCode = 1;
    }
