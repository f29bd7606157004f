import type { ReactNode } from "react";
import { useT } from "../i18n";
import { useInside, useSteady, useTallest } from "../lib/held";

/** NewRows says how many new rows wait, and shows them. It needs no place of its own, and stays in view while the list is scrolled. */
export function NewRows({ n, show }: { n: number; show: () => void }) {
  const t = useT();
  return (
    <div className="new-rows">
      {n > 0 && (
        <button type="button" className="chip" onClick={show}>
          {t("live.new", { n })}
        </button>
      )}
    </div>
  );
}

/**
 * LiveList is a list that the server changes. While the reader is inside it, new rows wait, and it never gets shorter. of names the list, such as
 * its filters.
 */
export function LiveList<I>({
  items,
  id,
  of,
  children,
}: {
  items: I[];
  id: (item: I) => string;
  of?: string;
  children: (rows: I[], gone: ReadonlySet<string>) => ReactNode;
}) {
  const { inside, events } = useInside();
  const { rows, gone, fresh, release } = useSteady(items, id, inside, of);
  const height = useTallest();
  return (
    <div {...events} className="live-list">
      <NewRows n={fresh} show={release} />
      <div ref={height}>{children(rows, gone)}</div>
    </div>
  );
}
