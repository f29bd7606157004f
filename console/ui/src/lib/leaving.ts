// A form with unsaved changes asks before its page is left: by a link, a key, the button Back, a reload, or a closed tab.
import { useCallback, useEffect, useState } from "react";
import { navigate, usePathname, type BrowserLocationHook } from "wouter/use-browser-location";

/** guard is set while a form has unsaved changes. It receives each navigation of the router. */
let guard: ((go: () => void) => void) | undefined;

/** back takes the event of the button Back while guard is set. It listens before the router does, because the router shows another page. */
let back: ((e: PopStateEvent) => void) | undefined;
addEventListener("popstate", (e) => back?.(e), true);

const guarded: typeof navigate = (to, options) => {
  const go = () => navigate(to, options);
  if (guard) guard(go);
  else go();
};

/** useGuardedLocation is the router's location. */
export const useGuardedLocation: BrowserLocationHook = (options) => [usePathname(options), guarded];

/** leaveNow navigates without a question. */
export const leaveNow: typeof navigate = (to, options) => {
  guard = undefined;
  navigate(to, options);
};

/** useLeaving asks before the page is left while changed is true. go continues what the user began, and is undefined if nothing is to be asked. */
export function useLeaving(changed: boolean): { go?: () => void; stay: () => void } {
  const [go, setGo] = useState<() => void>();
  const stay = useCallback(() => setGo(undefined), []);
  useEffect(() => {
    if (!changed) return;
    const here = location.pathname + location.search;
    const ask = (next: () => void) =>
      setGo(() => () => {
        guard = undefined;
        next();
      });
    // When popstate arrives, the address has already changed. It is set back, and the router does not see the event.
    back = (e: PopStateEvent) => {
      if (guard !== ask) return;
      const there = location.pathname + location.search;
      e.stopImmediatePropagation();
      navigate(here);
      ask(() => navigate(there, { replace: true }));
    };
    const unload = (e: BeforeUnloadEvent) => {
      if (guard === ask) e.preventDefault();
    };
    guard = ask;
    addEventListener("beforeunload", unload);
    return () => {
      if (guard === ask) guard = undefined;
      back = undefined;
      removeEventListener("beforeunload", unload);
    };
  }, [changed]);
  return { go, stay };
}
