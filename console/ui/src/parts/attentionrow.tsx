// The rows of the list Needs attention. Each row has three lines, so that no element moves when a row shows another item. Only missing servers and
// roles, which are explained in full, may need more.
import { Button } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "wouter";
import { search, type Schemas } from "../api/client";
import { useT, type Translate } from "../i18n";
import { useExplain, useMessage } from "../i18n/explain";
import { changeText } from "../lib/changetext";
import { engineKinds, isKind, nameOf, type Item, type Kind } from "../lib/attention";
import { useNow } from "../lib/hooks";
import { useMay } from "../lib/me";
import { clock, shortDuration } from "../lib/time";
import { Instant, reasonText, State } from "./basics";
import { Icon, shapes } from "./icons";
import { Runbook } from "./runbook";

/** kindName names a kind of items. An unknown kind is returned unchanged. */
export const kindName = (t: Translate, kind: string): string => (isKind(kind) ? t(`attention.kind.${kind}`) : kind);

const signs: Record<Kind, string> = {
  server_unavailable: shapes.failed,
  postgres_blocked: "M8 2.5v6M8 13h.01",
  postgres_connections: "M8 2.5v6M8 13h.01",
  role_missing: shapes.failed,
  process_missing: "M8 2.5v6M8 13h.01",
  job_failing: shapes.failed,
  group_without_executors: "M8 2.5v6M8 13h.01",
  backlog: shapes.queued,
  missed: "M8 3v6M8 12.5h.01",
  alert_undelivered: "M8 3v6M8 12.5h.01",
  dead_letters: "M8 3v6M8 12.5h.01",
};

/** AttentionRow shows an item: what is wrong and since when, why, and what helps to decide what to do. */
export function AttentionRow({
  item,
  gone,
  missed,
  onAck,
}: {
  item: Item;
  gone: boolean;
  missed?: Schemas["RecentMissed"];
  onAck?: () => void;
}) {
  const t = useT();
  const what = useWhat(item, missed);
  const severe = ["server_unavailable", "role_missing", "job_failing", "group_without_executors"].includes(item.kind);
  const ofEngine = engineKinds.includes(item.kind);
  const named = item.kind === "dead_letters" || ofEngine; // by its kind
  return (
    <li className={`attention-row${gone ? " gone" : ""}${ofEngine ? " whole" : ""}`} data-item={item.id}>
      <span className="attention-name">
        <span className={severe ? "bad" : "warn"}>
          {item.kind === "job_failing" ? (
            <State state="failed" compact />
          ) : (
            <>
              <Icon d={isKind(item.kind) ? signs[item.kind] : "M8 3v6M8 12.5h.01"} size={14} />{" "}
              {!named && kindName(t, item.kind)}
            </>
          )}
        </span>{" "}
        {what.href ? (
          <Link href={what.href} data-row className="row-link">
            {what.name}
          </Link>
        ) : (
          <b>{what.name}</b>
        )}{" "}
        {item.kind !== "job_failing" && item.group === what.name ? null : <span className="faint">{item.group}</span>}
      </span>
      <span className="attention-since num">
        <Since item={item} />
      </span>
      <span className="attention-says" title={what.says}>
        {what.saysHref ? (
          <Link href={what.saysHref} className="plain-link">
            {what.says}
          </Link>
        ) : (
          what.says
        )}
      </span>
      <span className="attention-helps faint">{what.helps}</span>
      <span className="attention-ack">
        {onAck && !gone && (
          <Button
            size="compact-xs"
            variant="subtle"
            color="gray"
            onClick={onAck}
            aria-label={t("attention.ack.title", { name: what.name })}
          >
            {t("attention.ack")}
          </Button>
        )}
      </span>
    </li>
  );
}

/** Since says since when an item needs attention, and for how long. */
function Since({ item }: { item: Item }) {
  const t = useT();
  const now = useNow();
  if (!item.since) return null;
  const ms = Math.max(0, now.getTime() - Date.parse(item.since));
  return (
    <>
      <span className="faint">{t("attention.since")}</span> <Instant at={item.since} now={now} />{" "}
      <span className={item.kind === "job_failing" ? "bad bold" : ""}>{shortDuration(ms)}</span>
    </>
  );
}

interface What {
  name: string;
  href?: string;
  says: string;
  saysHref?: string;
  helps: ReactNode;
}

/** useWhat says an item in the reader's language. */
function useWhat(item: Item, missed?: Schemas["RecentMissed"]): What {
  const t = useT();
  const may = useMay();
  const now = useNow();
  const explain = useExplain();
  const message = useMessage();
  const name = nameOf(item);
  const n = item.at_least ? `${item.count}+` : item.count;
  const link = (href: string, text: string) => (
    <Link className="link" href={href}>
      {text}
    </Link>
  );
  if (!isKind(item.kind)) return { name, says: item.text, helps: "" };
  switch (item.kind) {
    case "server_unavailable":
    case "postgres_blocked":
    case "postgres_connections":
    case "role_missing":
    case "process_missing":
      return {
        name: kindName(t, item.kind),
        href: may.administer ? "/system" : undefined,
        says: item.explanation ? explain(item.explanation) : item.text,
        helps: (
          <>
            <Runbook url={item.runbook_url} />
            {item.detail && ` · ${item.detail}`}
          </>
        ),
      };
    case "job_failing": {
      const said = message({ message: item.message ?? "", message_parts: item.message_parts });
      return {
        name,
        href: `/jobs/${item.job_id}`,
        says: [item.reason && reasonText(t, item.reason), said].filter(Boolean).join(" · "),
        saysHref: item.run_id ? `/runs/${item.run_id}` : undefined,
        helps: (
          <>
            <Runbook url={item.runbook_url} />
            {item.runbook_url && " · "}
            <span className="num">{t("health.streak", { n: item.count })}</span>
            {" · "}
            {item.last_success ? (
              <Link className="plain-link num" href={`/runs/${item.last_success.run_id}`}>
                {t("health.lastsuccess", { at: clock(item.last_success.at, now) })}
              </Link>
            ) : (
              t("health.nosuccess")
            )}
            {item.changes?.map((c) => (
              <span key={c.code}> · {changeText(t, explain, c, now)}</span>
            ))}
          </>
        ),
      };
    }
    case "group_without_executors":
      return {
        name,
        href: `/executors?open=${name}`,
        says: t("attention.says.group_without_executors", { n }),
        helps: link(`/jobs?group=${name}`, t("attention.jobs")),
      };
    case "backlog":
      return {
        name,
        href: `/executors?open=${name}`,
        says: t("attention.says.backlog", { n }),
        helps: link(`/runs${search({ group: name, state: "pending,queued" })}`, t("attention.runs")),
      };
    case "missed":
      return {
        name: item.job_name || name,
        href: `/jobs/${item.job_id}${missed ? `?why=${encodeURIComponent(missed.last)}` : "?tab=history"}`,
        says: [t("attention.says.missed", { n }), missed && explain(missed.why)].filter(Boolean).join(" · "),
        helps: link(`/jobs?group=${item.group}`, t("attention.jobs")),
      };
    case "alert_undelivered":
      return {
        name,
        href: may.administer ? "/alert-channels" : undefined,
        says: t("attention.says.alert_undelivered", { n }),
        helps: item.detail ?? "",
      };
    case "dead_letters":
      return {
        name: kindName(t, item.kind),
        href: "/dead-letters",
        says: t("attention.says.dead_letters", { n }),
        helps: "",
      };
  }
}

/** AckedRow shows an acknowledged item in two quiet lines: what is wrong, and who acknowledged it. */
export function AckedRow({ item, onAck }: { item: Item; onAck?: () => void }) {
  const t = useT();
  const what = useWhat(item);
  const now = useNow(60_000);
  const ack = item.acknowledged;
  return (
    <li className="acked-row" data-item={item.id}>
      <span className="attention-name">
        <span className="faint">{kindName(t, item.kind)}</span>{" "}
        {what.href ? (
          <Link href={what.href} data-row className="plain-link">
            {what.name}
          </Link>
        ) : (
          what.name
        )}{" "}
        <span className="faint">{what.says}</span>
      </span>
      {onAck && (
        <button
          type="button"
          className="link"
          onClick={onAck}
          aria-label={t("attention.again.title", { name: what.name })}
        >
          {t("attention.again")}
        </button>
      )}
      {ack && (
        <span className="attention-says">
          {ack.by} · <Instant at={ack.at} now={now} />
          {ack.note && ` · ${ack.note}`}
          {ack.until && (
            <>
              {" · "}
              {t("attention.until")} <Instant at={ack.until} now={now} />
            </>
          )}
        </span>
      )}
    </li>
  );
}
