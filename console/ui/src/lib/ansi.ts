// Terminal colours in log lines. The result is plain text with styles, never markup.

export interface Span {
  text: string;
  /** The name of one of the eight colours, bright or not: "red", "bright-blue". */
  color?: string;
  background?: string;
  bold?: boolean;
  dim?: boolean;
  italic?: boolean;
  underline?: boolean;
}

const names = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

type Style = Omit<Span, "text">;

// CSI sequences, OSC sequences up to BEL or ST, and lone escapes.
// oxlint-disable-next-line no-control-regex
const escapes = /\x1b\[([0-?]*)[ -/]*([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]?/g;

/** spans splits a line where its style changes. Escape sequences without a style are dropped. */
export function spans(line: string): Span[] {
  if (!line.includes("\x1b")) return [{ text: line }];
  const out: Span[] = [];
  let style: Style = {};
  let last = 0;
  const add = (text: string) => {
    if (text) out.push({ text, ...style });
  };
  for (const m of line.matchAll(escapes)) {
    add(line.slice(last, m.index));
    last = m.index + m[0].length;
    if (m[2] === "m" && /^[0-9;:]*$/.test(m[1] ?? "")) style = restyle(style, m[1] ?? "");
  }
  add(line.slice(last));
  return out;
}

/** plain returns the text without escape sequences. */
export function plain(line: string): string {
  return line.includes("\x1b") ? line.replace(escapes, "") : line;
}

function restyle(before: Style, codes: string): Style {
  const style = { ...before };
  const list = codes.split(/[;:]/).map((c) => (c === "" ? 0 : Number(c)));
  for (let i = 0; i < list.length; i++) {
    const c = list[i] ?? 0;
    if (c === 0) for (const k of Object.keys(style) as (keyof Style)[]) delete style[k];
    else if (c === 1) style.bold = true;
    else if (c === 2) style.dim = true;
    else if (c === 3) style.italic = true;
    else if (c === 4) style.underline = true;
    else if (c === 22) {
      delete style.bold;
      delete style.dim;
    } else if (c === 23) delete style.italic;
    else if (c === 24) delete style.underline;
    else if (c >= 30 && c <= 37) style.color = names[c - 30];
    else if (c >= 90 && c <= 97) style.color = "bright-" + names[c - 90];
    else if (c === 39) delete style.color;
    else if (c >= 40 && c <= 47) style.background = names[c - 40];
    else if (c >= 100 && c <= 107) style.background = "bright-" + names[c - 100];
    else if (c === 49) delete style.background;
    else if (c === 38 || c === 48) {
      // Only the first 16 of 256 colours have names here. Other colours and true colours get the default colour.
      if (list[i + 1] === 5) {
        const n = list[i + 2] ?? 16;
        const name = n < 8 ? names[n] : n < 16 ? "bright-" + names[n - 8] : undefined;
        if (c === 38) style.color = name;
        else style.background = name;
        i += 2;
      } else if (list[i + 1] === 2) i += 4;
    }
  }
  return style;
}
