import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useLocation, useSearch } from "wouter";
import { search } from "../api/client";

/** useNow returns the current time, and updates it at an interval in milliseconds. */
export function useNow(every = 1000): Date {
  const [now, set] = useState(() => new Date());
  useEffect(() => {
    const timer = setInterval(() => set(new Date()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

/** useFilters keeps a list's filters in the URL, so that a shared link shows the same list. */
export function useFilters<N extends string>(
  names: readonly N[],
): [Record<N, string>, (change: Partial<Record<N, string>>) => void] {
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

/** useTyped keeps the text of a field. It follows a value from outside, and calls onChange after a pause in typing. */
export function useTyped(
  value: string,
  onChange: (text: string) => void,
  pause = 250,
): [string, (text: string) => void] {
  const [text, set] = useState(value);
  const sent = useRef(value);
  const latest = useRef(onChange);
  latest.current = onChange;
  useEffect(() => {
    if (value !== sent.current) {
      sent.current = value;
      set(value);
    }
  }, [value]);
  useEffect(() => {
    if (text === sent.current) return;
    const timer = setTimeout(() => {
      sent.current = text;
      latest.current(text);
    }, pause);
    return () => clearTimeout(timer);
  }, [text, pause]);
  return [text, set];
}

const typing = (e: KeyboardEvent): boolean =>
  e.target instanceof HTMLElement && (e.target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName));

/** useKeys calls the functions of single keys and sequences ("g j"), unless a text field has the focus or a dialog is open. */
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

/** useListKeys moves the focus between a page's rows with the keys j and k. Rows are elements with data-row. */
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

/** useTitle sets the title of the browser tab. */
export function useTitle(title: string) {
  useEffect(() => {
    document.title = title ? `${title} · Belfry` : "Belfry";
  }, [title]);
}
