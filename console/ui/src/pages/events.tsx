import { Text } from "@mantine/core";
import { Link } from "wouter";
import { get, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useFilters, useListKeys, useTitle } from "../lib/hooks";
import { Empty, Instant, PageHead, Section, Snippet } from "../parts/basics";
import { SearchField } from "../parts/filters";
import { Pages } from "../parts/pages";
import { eventCommand } from "../parts/snippets";

export default function Events() {
  const t = useT();
  useTitle(t("nav.events"));
  useListKeys();
  const [f, setF] = useFilters(["name"] as const);
  return (
    <>
      <PageHead title={t("nav.events")} />
      <div className="filters"><SearchField value={f.name} onChange={(name) => setF({ name })} label={t("event.name")} /></div>
      <Pages<Schemas["Event"]> name={["events", f.name]} every={3000} read={(cursor) => get("/api/v1/events", { query: { cursor, limit: 50, name: f.name || undefined } })}
        empty={<Empty title={t("list.none")}><Text size="sm">{t("event.teach")}</Text><Snippet code={eventCommand()} /></Empty>}>
        {(items) => (
          <table className="list">
            <thead><tr><th>{t("event.at")}</th><th>{t("event.name")}</th><th>{t("event.came")}</th><th className="mid">{t("event.from")}</th></tr></thead>
            <tbody>{items.map((e) => (
              <tr key={e.id}><td className="num"><Instant at={e.received_at} now={new Date()} /></td><td className="grow">{e.name}</td>
                <td className="message">{e.deliveries.map((d) => <div key={d.trigger_id}>{d.run_id ? <Link href={`/runs/${d.run_id}`} data-row className="row-link">{d.name}</Link> : d.name} <span className="faint">{d.why}</span></div>)}</td>
                <td className="mid">{e.sent_by || e.source} <span className="faint">{e.via}</span></td></tr>
            ))}</tbody>
          </table>
        )}
      </Pages>
      <div className="below"><Section title={t("event.triggers")}>
        <Pages<Schemas["EventTrigger"]> name={["event-triggers"]} read={(cursor) => get("/api/v1/event-triggers", { query: { cursor, limit: 100 } })}>
          {(items) => (
            <table className="list">
              <thead><tr><th>{t("event.name")}</th><th>{t("field.job")}</th><th className="mid">{t("event.filter")}</th><th className="wide">{t("field.param")}</th><th>{t("job.enabled")}</th></tr></thead>
              <tbody>{items.map((e) => (
                <tr key={e.id}><td className="grow mono">{e.name}</td><td><Link href={`/jobs/${e.job_id}`} className="plain-link">{e.job_name}</Link> <span className="faint">{e.group}</span></td><td className="mid mono message">{e.filter}</td><td className="wide mono message">{e.param}</td><td>{t(e.enabled ? "job.enabled" : "job.disabled")}</td></tr>
              ))}</tbody>
            </table>
          )}
        </Pages>
      </Section></div>
    </>
  );
}
