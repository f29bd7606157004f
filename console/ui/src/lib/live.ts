import { useEffect, useRef, useState } from "react";
import { get, type Run } from "../api/client";

export type StreamStatus = "live" | "connecting" | "off";

/**
 * useStream reads a stream of server-sent events, and calls the handler with the event's name. The handler open is called for each
 * connection, also after an interruption. A hidden tab closes its stream, because a browser has few connections for all tabs of one
 * server.
 */
export function useStream(address: string | undefined, handlers: Record<string, (data: string) => void>): StreamStatus {
  const latest = useRef(handlers);
  latest.current = handlers;
  const wanted = useRef(address);
  wanted.current = address;
  const [hidden, setHidden] = useState(document.hidden);
  const [status, setStreamStatus] = useState<StreamStatus>("off");
  const [tries, again] = useState(0);
  useEffect(() => {
    const on = () => setHidden(document.hidden);
    document.addEventListener("visibilitychange", on);
    return () => document.removeEventListener("visibilitychange", on);
  }, []);
  useEffect(() => {
    if (!address || hidden) {
      setStreamStatus("off");
      return;
    }
    setStreamStatus("connecting");
    let timer: ReturnType<typeof setTimeout> | undefined;
    const source = new EventSource(address);
    source.addEventListener("open", () => setStreamStatus("live"));
    for (const name of ["open", ...Object.keys(latest.current)]) {
      source.addEventListener(name, (e) => {
        // After a change of the address, the handlers are those of the new one, and this stream is about to be closed.
        if (wanted.current === address) latest.current[name]?.((e as MessageEvent<string>).data);
      });
    }
    source.addEventListener("error", () => {
      setStreamStatus("connecting");
      // After an answer that is not a stream, the browser does not connect again, so this does.
      if (source.readyState !== EventSource.CLOSED) return;
      timer = setTimeout(() => again((n) => n + 1), 10_000);
      // The session may have ended, which the stream cannot report. Other requests of the page report other errors.
      get("/api/v1/auth/me").catch(() => undefined);
    });
    return () => {
      clearTimeout(timer);
      source.close();
    };
  }, [address, hidden, tries]);
  return status;
}

/** merge replaces the runs that have changed. If add is true, it also adds new runs in order, newest first. */
export function merge<R extends Pick<Run, "id">>(list: R[], changed: ReadonlyMap<string, R>, add = true): R[] {
  const left = new Map(changed);
  const merged = list.map((r) => {
    const now = left.get(r.id);
    left.delete(r.id);
    return now ?? r;
  });
  if (!add || left.size === 0) return merged;
  return [...merged, ...left.values()].sort((a, b) => (a.id < b.id ? 1 : a.id > b.id ? -1 : 0));
}

/**
 * useRunStream follows the changes of runs that match a query. It calls change at most a few times per second. It calls reload when
 * the whole list must be read again: after each connection, and if changes are missing.
 */
export function useRunStream(
  query: string | undefined,
  change: (changed: Map<string, Run>, gone: Set<string>) => void,
  reload: () => void,
): StreamStatus {
  const changed = useRef(new Map<string, Run>());
  const gone = useRef(new Set<string>());
  const of = useRef(query);
  if (of.current !== query) {
    // Changes that wait are about runs that matched the previous query.
    of.current = query;
    changed.current = new Map();
    gone.current = new Set();
  }
  const onChange = useRef(change);
  onChange.current = change;
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const reloadedAt = useRef(0);
  const flush = () => {
    timer.current = undefined;
    const [c, g] = [changed.current, gone.current];
    changed.current = new Map();
    gone.current = new Set();
    if (c.size > 0 || g.size > 0) onChange.current(c, g);
  };
  const later = () => (timer.current ??= setTimeout(flush, 300));
  useEffect(() => () => clearTimeout(timer.current), []);
  return useStream(query === undefined ? undefined : `/api/v1/runs/stream${query}`, {
    open: reload,
    run: (data) => {
      const r = JSON.parse(data) as Run;
      gone.current.delete(r.id);
      changed.current.set(r.id, r);
      later();
    },
    gone: (data) => {
      const { id } = JSON.parse(data) as { id: string };
      changed.current.delete(id);
      gone.current.add(id);
      later();
    },
    gap: () => {
      if (Date.now() - reloadedAt.current < 5000) return;
      reloadedAt.current = Date.now();
      reload();
    },
  });
}
