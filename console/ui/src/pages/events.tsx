import { Button, Text } from "@mantine/core";
import { useState } from "react";
import { get, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useFilters, useListKeys, useTitle } from "../lib/hooks";
import { useMay } from "../lib/me";
import { Empty, Instant, PageHead, Section, Snippet } from "../parts/basics";
import { Deliveries, ShowEvent, SendEvent } from "../parts/eventdialogs";
import { EventTriggers } from "../parts/eventtriggers";
import { SearchField } from "../parts/filters";
import { Pages } from "../parts/pages";
import { eventCommand } from "../parts/snippets";

type Event = Schemas["Event"];

export default function Events() {
  const t = useT();
  useTitle(t("nav.events"));
  useListKeys();
  const may = useMay();
  const [f, setF] = useFilters(["name"] as const);
  const [shown, setShown] = useState<string>();
  const [sending, setSending] = useState(false);
  return (
    <>
      <PageHead title={t("nav.events")}>
        {may.operate && (
          <Button size="xs" variant="default" onClick={() => setSending(true)}>
            {t("event.send")}
          </Button>
        )}
      </PageHead>
      <EventTriggers />
      <Section title={t("event.received")}>
        <div className="filters">
          <SearchField value={f.name} onChange={(name) => setF({ name })} label={t("event.search")} />
        </div>
        <Pages<Event>
          name={["events", f.name]}
          every={3000}
          read={(cursor) => get("/api/v1/events", { query: { cursor, limit: 50, name: f.name || undefined } })}
          empty={
            <Empty title={t(f.name ? "event.nofit" : "event.none")}>
              {!f.name && (
                <>
                  <Text size="sm">{t("event.teach")}</Text>
                  <Snippet code={eventCommand()} />
                </>
              )}
            </Empty>
          }
        >
          {(items) => (
            <table className="list">
              <thead>
                <tr>
                  <th>{t("event.at")}</th>
                  <th>{t("event.name")}</th>
                  <th>{t("event.came")}</th>
                  <th className="mid">{t("event.from")}</th>
                </tr>
              </thead>
              <tbody>
                {items.map((e) => (
                  <tr key={e.id}>
                    <td className="num">
                      <button type="button" className="row-button" data-row onClick={() => setShown(e.id)}>
                        <Instant at={e.received_at} now={new Date()} />
                      </button>
                    </td>
                    <td className="grow mono">
                      <div className="clamp">{e.name}</div>
                    </td>
                    <td className="message">
                      <Deliveries of={e.deliveries} row />
                    </td>
                    <td className="mid">
                      <div className="clamp">
                        {e.sent_by || e.source} <span className="faint">{e.via}</span>
                      </div>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </Pages>
      </Section>
      {shown && <ShowEvent id={shown} onClose={() => setShown(undefined)} />}
      {sending && <SendEvent onClose={() => setSending(false)} />}
    </>
  );
}
