import type { LogLine } from "../api/client";
import { plain } from "./ansi";

export interface LogFilter {
  text: string;
  levels: string[];
}

/** fits reports whether a line matches the filter. The filter's text must be in lower case. */
export function fits(line: LogLine, f: LogFilter): boolean {
  return (
    (f.levels.length === 0 || f.levels.includes(line.level)) &&
    (f.text === "" || plain(line.text).toLowerCase().includes(f.text))
  );
}

const perAttempt = 1_000_000_000;

/** lineInAttempt returns the number of a line within its attempt: the line with number 1,000,000,003 is line 3 of attempt 2. */
export const lineInAttempt = (n: number): number => ((n - 1) % perAttempt) + 1;

/** firstOfAttempt returns the number of an attempt's first line. */
export const firstOfAttempt = (attempt: number): number => (attempt - 1) * perAttempt + 1;

/** lineAt returns the index of the line with number n, or of the next one; -1 if all lines are before n. Lines are in order of their numbers. */
export function lineAt(lines: LogLine[], n: number): number {
  let [low, high] = [0, lines.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((lines[middle]?.n ?? 0) < n) low = middle + 1;
    else high = middle;
  }
  return low < lines.length ? low : -1;
}

const errorWords = /\b(error|fatal|panic|exception|traceback)\b/i;

/**
 * FirstError finds the first error of a log: the first line with level error, otherwise the first line of stderr, otherwise the first line
 * that has a word such as error. Each line is looked at once.
 */
export class FirstError {
  private found: [error?: number, stderr?: number, word?: number] = [];

  add(line: LogLine) {
    if (line.level === "error") this.found[0] ??= line.n;
    else if (line.level === "stderr") this.found[1] ??= line.n;
    else if (this.found[2] === undefined && errorWords.test(line.text)) this.found[2] = line.n;
  }

  /** line returns the number of the line, undefined if the log has no error. oldest is the oldest line that the page still has. */
  line(oldest: LogLine | undefined): number | undefined {
    return this.found.find((n) => n !== undefined && n >= (oldest?.n ?? 0));
  }
}
