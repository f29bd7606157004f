// The focus stays where it was. Menus and dialogs are outside of the page's root, and are removed together with the focus.
import { useEffect } from "react";

const open = '[role="dialog"], [role="menu"]';

/**
 * useFocusKept gives the focus back if the focused element was removed: to the element that had it before a menu or dialog opened, to the same link or
 * button of a list that was read again, or to the content of the page.
 */
export function useFocusKept() {
  useEffect(() => {
    const root = document.getElementById("root");
    if (!root) return;
    let last: HTMLElement | undefined;
    let path = "";
    let timer: ReturnType<typeof setTimeout> | undefined;
    const lost = () => last !== undefined && document.activeElement === document.body && !document.querySelector(open);
    const restore = () => {
      timer = undefined;
      if (!last || !lost()) return;
      const again = last.isConnected ? last : path === location.pathname ? same(last) : undefined;
      (again ?? document.getElementById("main"))?.focus({ preventScroll: true });
    };
    const entered = (e: FocusEvent) => {
      if (!(e.target instanceof HTMLElement) || !root.contains(e.target)) return;
      last = e.target;
      path = location.pathname;
    };
    // A click on an empty place removes the focus. The user wants this, so the focus is not given back.
    const pressed = (e: PointerEvent) => {
      if (e.target instanceof Node && root.contains(e.target)) last = undefined;
    };
    const watch = new MutationObserver(() => {
      if (!timer && lost()) timer = setTimeout(restore);
    });
    watch.observe(document.body, { childList: true, subtree: true });
    document.addEventListener("focusin", entered);
    document.addEventListener("pointerdown", pressed, true);
    return () => {
      clearTimeout(timer);
      watch.disconnect();
      document.removeEventListener("focusin", entered);
      document.removeEventListener("pointerdown", pressed, true);
    };
  }, []);
}

/** same finds the element of the page that replaces a removed one: a link to the same address, or a button with the same name. */
function same(gone: HTMLElement): HTMLElement | undefined {
  const name = gone.getAttribute("href") === null ? "aria-label" : "href";
  const value = gone.getAttribute(name);
  if (!value) return undefined;
  return document.querySelector<HTMLElement>(`main ${gone.tagName}[${name}="${CSS.escape(value)}"]`) ?? undefined;
}
