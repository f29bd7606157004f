import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useLocation, useSearch } from "wouter";
import { search } from "../api/client";

/** useNow is the time, renewed every so many milliseconds. */
export function useNow(every = 1000): Date {
  const [now, set] = useState(() => new Date());
  useEffect(() => {
    const timer = setInterval(() => set(new Date()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

/** useFilters keeps a list's filters in the URL, so that a link shows what its sender saw. */
export function useFilters<N extends string>(names: readonly N[]): [Record<N, string>, (change: Partial<Record<N, string>>) => void] {
  const query = useSearch();
  const [path, navigate] = useLocation();
  const filters = useMemo(() => {
    const q = new URLSearchParams(query);
    return Object.fromEntries(names.map((n) => [n, q.get(n) ?? ""])) as Record<N, string>;
    // oxlint-disable-next-line react-hooks/exhaustive-deps -- names are a constant of the page
  }, [query]);
  const change = useCallback(
    (c: Partial<Record<N, string>>) => navigate(path + search({ ...filters, ...c }), { replace: true }),
    [navigate, path, filters],
  );
  return [filters, change];
}

/** useTyped is the text of a field that follows a value from outside and tells of its own changes after a rest. */
export function useTyped(value: string, tell: (text: string) => void, rest = 250): [string, (text: string) => void] {
  const [text, set] = useState(value);
  const told = useRef(value);
  const latest = useRef(tell);
  latest.current = tell;
  useEffect(() => {
    if (value !== told.current) {
      told.current = value;
      set(value);
    }
  }, [value]);
  useEffect(() => {
    if (text === told.current) return;
    const timer = setTimeout(() => {
      told.current = text;
      latest.current(text);
    }, rest);
    return () => clearTimeout(timer);
  }, [text, rest]);
  return [text, set];
}

const typing = (e: KeyboardEvent): boolean =>
  e.target instanceof HTMLElement && (e.target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName));

/** useKeys calls what single keys and sequences ("g j") stand for, while nobody types and no dialog is open. */
export function useKeys(keys: Record<string, () => void>) {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    let before = "";
    let timer: ReturnType<typeof setTimeout> | undefined;
    const on = (e: KeyboardEvent) => {
      if (e.ctrlKey || e.metaKey || e.altKey || typing(e) || document.querySelector('[role="dialog"]')) return;
      const sequence = before ? `${before} ${e.key}` : e.key;
      before = "";
      clearTimeout(timer);
      const act = latest.current[sequence] ?? latest.current[e.key];
      if (act) {
        e.preventDefault();
        act();
      } else if (Object.keys(latest.current).some((k) => k.startsWith(`${e.key} `))) {
        before = e.key;
        timer = setTimeout(() => (before = ""), 1200);
      }
    };
    window.addEventListener("keydown", on);
    return () => {
      window.removeEventListener("keydown", on);
      clearTimeout(timer);
    };
  }, []);
}

/** useListKeys moves the focus among a page's rows, which are links with data-row, by j and k. */
export function useListKeys() {
  const move = (by: number) => {
    const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")];
    if (rows.length === 0) return;
    const at = rows.findIndex((r) => r === document.activeElement);
    const next = rows[at < 0 ? 0 : Math.min(Math.max(at + by, 0), rows.length - 1)];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  useKeys({ j: () => move(1), k: () => move(-1) });
}

/** useTitle names the browser tab. */
export function useTitle(title: string) {
  useEffect(() => {
    document.title = title ? `${title} · Belfry` : "Belfry";
  }, [title]);
}
