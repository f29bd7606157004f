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
