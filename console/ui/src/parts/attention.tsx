import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get, post, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { grouped, nameOf, type Item } from "../lib/attention";
import { useKeys } from "../lib/hooks";
import { useMay } from "../lib/me";
import { useRefresh } from "./actions";
import { AckedRow, AttentionRow, kindName } from "./attentionrow";
import { ErrorNote, Section } from "./basics";
import { LiveList } from "./livelist";
import { ReasonDialog } from "./reasondialog";
import { Skeletons } from "./skeletons";

/** The number of rows before the rest is folded. */
const first = 10;

/**
 * Attention lists what needs a person, the most urgent first: failing jobs, groups without executors, backlogs and so on. Acknowledged items
 * are folded at the end. missed explains the missed fire times.
 */
export function Attention({
  group,
  live,
  missed,
}: {
  group?: string;
  live: boolean;
  missed: Schemas["RecentMissed"][];
}) {
  const t = useT();
  const may = useMay();
  const [all, setAll] = useState(false);
  const [acking, setAcking] = useState<Item>();
  const list = useQuery({
    queryKey: ["attention"],
    queryFn: () => get("/api/v1/attention"),
    refetchInterval: live ? 5000 : false,
  });
  const { open, acked } = grouped(list.data?.items ?? [], group);
  useKeys({
    a: () => {
      const id = document.activeElement?.closest<HTMLElement>("[data-item]")?.dataset.item;
      const item = open.find((i) => i.id === id);
      if (item && may.operate) setAcking(item);
    },
    "g a": () => undefined, // the shell opens the page
  });
  return (
    <Section
      title={t("attention.title")}
      right={
        open.length > first && (
          <button type="button" className="link" onClick={() => setAll(!all)} aria-expanded={all}>
            {t(all ? "attention.fewer" : "attention.all", { n: open.length })}
          </button>
        )
      }
    >
      {list.error && <ErrorNote error={list.error} retry={() => void list.refetch()} />}
      {list.isPending && <Skeletons rows={3} />}
      {list.data && (
        <LiveList items={open} id={(i) => i.id} of={group}>
          {(rows, gone) =>
            rows.length === 0 ? (
              <p className="calm">{t(acked.length > 0 ? "attention.quiet" : "attention.none")}</p>
            ) : (
              <ul className="plain-list attention">
                {rows.slice(0, all ? rows.length : first).map((item, i) => (
                  <AttentionRow
                    key={i}
                    item={item}
                    gone={gone.has(item.id)}
                    missed={missed.find((m) => item.kind === "missed" && m.job_id === item.job_id)}
                    onAck={may.operate ? () => setAcking(item) : undefined}
                  />
                ))}
              </ul>
            )
          }
        </LiveList>
      )}
      {list.data && (list.data.truncated || list.data.unavailable.length > 0) && (
        <p className="faint small">
          {list.data.truncated && `${t("attention.more")} `}
          {list.data.unavailable.length > 0 &&
            t("attention.unavailable", { kinds: list.data.unavailable.map((k) => kindName(t, k)).join(", ") })}
        </p>
      )}
      {acked.length > 0 && (
        <details className="acked">
          <summary>{t("attention.acked", { n: acked.length })}</summary>
          <ul className="plain-list">
            {acked.map((item) => (
              <AckedRow key={item.id} item={item} onAck={may.operate ? () => setAcking(item) : undefined} />
            ))}
          </ul>
        </details>
      )}
      {acking && <Acknowledge item={acking} onClose={() => setAcking(undefined)} />}
    </Section>
  );
}

/** Acknowledge asks for a note and an optional end, and acknowledges an item. */
function Acknowledge({ item, onClose }: { item: Item; onClose: () => void }) {
  const t = useT();
  const refresh = useRefresh();
  return (
    <ReasonDialog
      title={t("attention.ack.title", { name: nameOf(item) || kindName(t, item.kind) })}
      text={t("attention.ack.text")}
      label={t("attention.note")}
      field="note"
      action={t("attention.ack")}
      save={async ({ reason, until }) => {
        await post("/api/v1/attention/{id}/acknowledge", { path: { id: item.id }, body: { note: reason, until } });
        await refresh("attention");
      }}
      onClose={onClose}
    />
  );
}
