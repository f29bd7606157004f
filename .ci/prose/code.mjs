// A textlint plugin that reads the comments of code, and the strings of Go that are sentences. Each block of comment lines is a
// paragraph; its lines keep their places, so that a finding names its line.

const marks = { ".go": "//", ".ts": "//", ".tsx": "//", ".mjs": "//", ".sql": "--", ".sh": "#", ".yml": "#", ".yaml": "#", ".py": "#" };

/** blocks returns [start, end] of each run of comment text, and of each sentence in a string of Go. */
export function blocks(text, ext) {
  const mark = marks[ext];
  const found = [];
  const line = new RegExp(`(?:^|\\s)${mark} (?![+!])(.*)$`);
  let offset = 0;
  for (const raw of text.split("\n")) {
    const comment = line.exec(raw);
    const code = comment ? raw.slice(0, comment.index) : raw;
    if (comment && count(code, '"') % 2 === 0 && count(code, "`") % 2 === 0 && count(code, "'") % 2 === 0) {
      const start = offset + raw.length - comment[1].length;
      const last = found.at(-1);
      if (code.trim() === "" && last && last.whole && /^\s*$/.test(text.slice(last.end, start).replaceAll(mark, ""))) {
        last.end = offset + raw.length;
      } else {
        found.push({ start, end: offset + raw.length, whole: code.trim() === "" });
      }
    } else if (ext === ".go" && !/^\s*\/\//.test(raw)) {
      for (const m of raw.matchAll(/"((?:[^"\\]|\\.){24,})"/g)) {
        if (count(m[1], " ") >= 4) {
          found.push({ start: offset + m.index + 1, end: offset + m.index + 1 + m[1].length, whole: false });
        }
      }
    }
    offset += raw.length + 1;
  }
  return found;
}

const count = (text, mark) => text.split(mark).length - 1;

class CodeProcessor {
  availableExtensions() {
    return Object.keys(marks);
  }
  processor(ext) {
    return {
      preProcess(text) {
        const lines = [0];
        for (let i = text.indexOf("\n"); i >= 0; i = text.indexOf("\n", i + 1)) lines.push(i + 1);
        const position = (at) => {
          let lo = 0;
          let hi = lines.length - 1;
          while (lo < hi) {
            const mid = (lo + hi + 1) >> 1;
            if (lines[mid] <= at) lo = mid;
            else hi = mid - 1;
          }
          return { line: lo + 1, column: at - lines[lo] };
        };
        const node = (type, start, end, more) => ({
          type,
          raw: text.slice(start, end),
          range: [start, end],
          loc: { start: position(start), end: position(end) },
          ...more,
        });
        const children = blocks(text, ext).map(({ start, end }) =>
          node("Paragraph", start, end, { children: [node("Str", start, end, { value: text.slice(start, end) })] }),
        );
        return node("Document", 0, text.length, { children });
      },
      postProcess(messages, filePath) {
        return { messages, filePath };
      },
    };
  }
}

export const code = { Processor: CodeProcessor };
