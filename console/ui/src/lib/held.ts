// New rows of a live list wait while the reader is inside the list, because the list would move under the reader.
import { useEffect, useRef, useState, type FocusEvent } from "react";
import type { Run } from "../api/client";

/** useInside reports whether the pointer or the focus is in an element, or its beginning is scrolled out of the window. */
export function useInside() {
  const box = useRef<HTMLDivElement>(null);
  const [pointer, setPointer] = useState(false);
  const [focus, setFocus] = useState(false);
  const [scrolled, setScrolled] = useState(false);
  useEffect(() => {
    const on = () => setScrolled((box.current?.getBoundingClientRect().top ?? 0) < 0);
    addEventListener("scroll", on, { passive: true });
    return () => removeEventListener("scroll", on);
  }, []);
  const events = {
    ref: box,
    onPointerEnter: () => setPointer(true),
    onPointerLeave: () => setPointer(false),
    onFocus: () => setFocus(true),
    onBlur: (e: FocusEvent) => setFocus(e.currentTarget.contains(e.relatedTarget)),
  };
  return { inside: pointer || focus || scrolled, events };
}

/** useHeld keeps new runs while hold is true, and gives them to show as soon as it is false. */
export function useHeld(hold: boolean, show: (runs: Map<string, Run>) => void) {
  const [held, setHeld] = useState<ReadonlyMap<string, Run>>(new Map());
  const latest = useRef(show);
  latest.current = show;
  const release = () => {
    if (held.size === 0) return;
    latest.current(new Map(held));
    setHeld(new Map());
  };
  useEffect(() => {
    if (!hold) release();
    // oxlint-disable-next-line react-hooks/exhaustive-deps -- release depends only on these
  }, [hold, held]);
  /** take keeps new runs, and drops those that are gone. */
  const take = (fresh: Iterable<Run>, gone: ReadonlySet<string>) =>
    setHeld((before) => {
      const next = new Map(before);
      for (const r of fresh) next.set(r.id, r);
      for (const id of gone) next.delete(id);
      return next;
    });
  const forget = () => setHeld(new Map());
  return { held, take, release, forget };
}

/**
 * useSteady shows a list that is read again and again. While hold is true, its rows stay in their places: known rows change in place, rows that
 * have gone stay, and new rows wait. gone has the keys
 * of rows that have gone, fresh is the number of new rows, and release shows the list as it is now. of names the list, such as its filters:
 * the rows of another list never wait.
 */
export function useSteady<I>(items: I[], key: (item: I) => string, hold: boolean, of = "") {
  const shown = useRef({ of, items });
  const [, render] = useState(0);
  if (!hold || shown.current.of !== of || shown.current.items.length === 0) shown.current = { of, items };
  const now = new Map(items.map((i) => [key(i), i]));
  const rows = shown.current.items === items ? items : shown.current.items.map((i) => now.get(key(i)) ?? i);
  const known = new Set(rows.map(key));
  const gone = new Set([...known].filter((k) => !now.has(k)));
  const release = () => {
    shown.current = { of, items };
    render((n) => n + 1);
  };
  return { rows, gone, fresh: items.filter((i) => !known.has(key(i))).length, release };
}

/**
 * useTallest gives an element its greatest height since its width changed. If a list gets shorter, the content below it stays in its place.
 * It returns the element's ref.
 */
export function useTallest() {
  const [el, ref] = useState<HTMLDivElement | null>(null);
  useEffect(() => {
    if (!el) return;
    let width = 0;
    const watch = new ResizeObserver(() => {
      if (el.clientWidth !== width) {
        width = el.clientWidth;
        el.style.minHeight = "";
      }
      el.style.minHeight = `${el.offsetHeight}px`;
    });
    watch.observe(el);
    return () => watch.disconnect();
  }, [el]);
  return ref;
}
