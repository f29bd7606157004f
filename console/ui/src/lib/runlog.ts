import { useEffect, useReducer, useRef, useState } from "react";
import type { LogLine } from "../api/client";
import { FirstError } from "./loglines";

/** If a log has more lines, the oldest are dropped from the page. The download has all lines. */
const maxLines = 300_000;

export type LogStatus = "connecting" | "live" | "ended" | "broken";

/** useLog follows a run's log. It appends lines to one array without copying it, and increments version for each change. */
export function useLog(run: string, onState: () => void) {
  const lines = useRef<LogLine[]>([]);
  const error = useRef(new FirstError());
  const [version, grow] = useReducer((n: number) => n + 1, 0);
  const [status, setStatus] = useState<LogStatus>("connecting");
  const [dropped, setDropped] = useState(0);
  const latest = useRef(onState);
  latest.current = onState;
  useEffect(() => {
    lines.current = [];
    error.current = new FirstError();
    let frame = 0;
    const source = new EventSource(`/api/v1/runs/${encodeURIComponent(run)}/log/stream`);
    source.addEventListener("open", () => setStatus("live"));
    source.addEventListener("line", (e: MessageEvent<string>) => {
      const line = JSON.parse(e.data) as LogLine;
      const last = lines.current.at(-1);
      if (last && line.n <= last.n) return; // sent again after a reconnect
      lines.current.push(line);
      error.current.add(line);
      if (frame) return;
      frame = requestAnimationFrame(() => {
        frame = 0;
        const over = lines.current.length - maxLines;
        if (over > 0) {
          lines.current.splice(0, over + maxLines / 10);
          setDropped((d) => d + over + maxLines / 10);
        }
        grow();
      });
    });
    source.addEventListener("state", () => latest.current());
    source.addEventListener("end", () => {
      source.close();
      setStatus("ended");
      latest.current();
    });
    source.addEventListener("error", () =>
      setStatus(source.readyState === EventSource.CLOSED ? "broken" : "connecting"),
    );
    return () => {
      source.close();
      cancelAnimationFrame(frame);
    };
  }, [run]);
  return { lines: lines.current, version, status, dropped, firstError: error.current.line(lines.current[0]) };
}
