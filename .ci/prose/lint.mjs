// Checks the prose of the repository: pages, comments, and the sentences of Go strings. It prints FILE:LINE:COLUMN for each
// finding and exits with 1 if there are any. `task lint` and .ci/run call it; `node .ci/prose/lint.mjs PATH…` checks a few files.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { extname } from "node:path";
import { TextlintKernel } from "@textlint/kernel";
import markdown from "@textlint/textlint-plugin-markdown";
import { code } from "./code.mjs";
import { rules } from "./rules.mjs";

const skipped = /(^|\/)(node_modules|dist|sqlcgen|testdata)\/|\.ci\/prose\/|CHANGELOG\.md$|internal\/layout\/logs_test\.go$/;
const extensions = new Set([".md", ".go", ".ts", ".tsx", ".mjs", ".sql", ".sh", ".yml", ".yaml", ".py"]);

const plugins = [
  { pluginId: "markdown", plugin: markdown.default ?? markdown },
  { pluginId: "code", plugin: code },
];

// The scripts of .ci and .ci/release have no extension.
const extension = (path) => (/^\.ci\/(release\/)?[\w-]+$/.test(path) ? ".sh" : extname(path));

export async function lint(path, text) {
  const ext = extension(path);
  return (await new TextlintKernel().lintText(text, { filePath: path, ext, plugins, rules })).messages;
}

if (process.argv[1] === import.meta.filename) {
  const paths = execFileSync("git", ["ls-files", "-z", ...process.argv.slice(2)], { encoding: "utf8" }).split("\0");
  let files = 0;
  let findings = 0;
  for (const path of paths) {
    if (skipped.test(path) || !extensions.has(extension(path))) continue;
    files++;
    for (const m of await lint(path, readFileSync(path, "utf8"))) {
      findings++;
      console.log(`${path}:${m.loc.start.line}:${m.loc.start.column}: ${m.message}`);
    }
  }
  console.log(`${files} files, ${findings} findings`);
  process.exitCode = findings > 0 || files === 0 ? 1 : 0;
}
