import { useEffect, useRef, useState } from "react";
import { get, type Run } from "../api/client";

export type Hearing = "live" | "connecting" | "off";

/**
 * useStream hears what the server tells at an address, by the events' names; open comes with each connection, also with a new
 * one after a break. A tab that nobody sees lets go of it: browsers have few connections for all tabs of one server.
 */
export function useStream(address: string | undefined, hear: Record<string, (data: string) => void>): Hearing {
  const latest = useRef(hear);
  latest.current = hear;
  const [hidden, setHidden] = useState(document.hidden);
  const [hearing, setHearing] = useState<Hearing>("off");
  const [tries, again] = useState(0);
  useEffect(() => {
    const on = () => setHidden(document.hidden);
    document.addEventListener("visibilitychange", on);
    return () => document.removeEventListener("visibilitychange", on);
  }, []);
  useEffect(() => {
    if (!address || hidden) {
      setHearing("off");
      return;
    }
    setHearing("connecting");
    let timer: ReturnType<typeof setTimeout> | undefined;
    const source = new EventSource(address);
    source.addEventListener("open", () => setHearing("live"));
    for (const name of ["open", ...Object.keys(latest.current)]) {
      source.addEventListener(name, (e) => latest.current[name]?.((e as MessageEvent<string>).data));
    }
    source.addEventListener("error", () => {
      setHearing("connecting");
      // After an answer that is no stream the browser gives up; the server may have one again in a while.
      if (source.readyState !== EventSource.CLOSED) return;
      timer = setTimeout(() => again((n) => n + 1), 10_000);
      // The session may be over, of which the stream says nothing. Whatever else it is, the page's other questions tell.
      get("/api/v1/auth/me").catch(() => undefined);
    });
    return () => {
      clearTimeout(timer);
      source.close();
    };
  }, [address, hidden, tries]);
  return hearing;
}

/** merge puts changed runs in the place of their former selves. Others are added in order, newest first, if they may be. */
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
 * useRunStream follows the changes of runs that fit a query. It hands them over a few times a second at most; reload is called
 * when the list must be read as a whole: on each connection, and where changes were left out.
 */
export function useRunStream(query: string | undefined, change: (changed: Map<string, Run>, gone: Set<string>) => void, reload: () => void): Hearing {
  const changed = useRef(new Map<string, Run>());
  const gone = useRef(new Set<string>());
  const tell = useRef(change);
  tell.current = change;
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const reloadedAt = useRef(0);
  const flush = () => {
    timer.current = undefined;
    const [c, g] = [changed.current, gone.current];
    changed.current = new Map();
    gone.current = new Set();
    tell.current(c, g);
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
