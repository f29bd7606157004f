import { Alert, Button, Group, Modal, Stack, Text, Textarea, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { ApiError, get, post, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useRefresh } from "./actions";
import { ErrorNote, errorText, Facts, Instant, Snippet } from "./basics";

type Event = Schemas["Event"];

const outcomeClass = {
  fired: "pill-good",
  disabled: "",
  filtered: "",
  filter_error: "pill-bad",
  param_error: "pill-bad",
  over_budget: "pill-bad",
  job_fired: "",
  no_job: "pill-bad",
} as const;

/** Deliveries shows what each trigger did with an event. In a row of a list, each one has a line, and only the first ones are shown. */
export function Deliveries({ of, row }: { of: Event["deliveries"]; row?: boolean }) {
  const t = useT();
  const shown = row && of.length > 2 ? of.slice(0, 1) : of;
  const all = shown.map((d) => (
    <div key={d.trigger_id} className={row ? "clamp one" : undefined} title={row ? d.why : undefined}>
      <span className={`pill ${outcomeClass[d.outcome]}`}>{t(`outcome.event.${d.outcome}`)}</span>{" "}
      {d.run_id ? (
        <Link href={`/runs/${d.run_id}`} className="plain-link">
          {d.name}
        </Link>
      ) : (
        d.name
      )}{" "}
      <span className="faint">{d.outcome === "fired" ? "" : d.why}</span>
    </div>
  ));
  if (shown.length < of.length) all.push(<div key="more">{t("bulk.more", { n: of.length - shown.length })}</div>);
  return all;
}

/** ShowEvent shows an event with its data. */
export function ShowEvent({ id, onClose }: { id: string; onClose: () => void }) {
  const t = useT();
  const one = useQuery({
    queryKey: ["event", id],
    queryFn: () => get("/api/v1/events/{name}", { path: { name: id } }) as Promise<Event>,
    staleTime: Infinity,
  });
  const e = one.data;
  return (
    <Modal
      opened
      onClose={onClose}
      size="lg"
      title={e?.name ?? t("run.event")}
      closeButtonProps={{ "aria-label": t("close") }}
    >
      {one.error && <ErrorNote error={one.error} />}
      {e && (
        <Stack gap="sm">
          <Facts
            of={[
              [
                "ID",
                <span key="id" className="mono">
                  {e.id}
                </span>,
              ],
              [t("event.at"), <Instant key="at" at={e.received_at} />],
              [t("event.from"), [e.sent_by, e.via].filter(Boolean).join(" · ")],
              [t("event.key"), e.key],
              [t("event.source"), e.source],
              [t("event.type"), e.type],
              [t("letter.subject"), e.subject],
            ]}
          />
          <div>
            <Text size="xs" c="dimmed">
              {t("event.came")}
            </Text>
            {e.deliveries.length ? (
              <div className="message">
                <Deliveries of={e.deliveries} />
              </div>
            ) : (
              <Text size="sm">{t("event.nomatch")}</Text>
            )}
          </div>
          <div>
            <Text size="xs" c="dimmed">
              {t("event.data")}
            </Text>
            <Snippet code={JSON.stringify(e.data, null, 2) ?? ""} />
          </div>
        </Stack>
      )}
    </Modal>
  );
}

/** SendEvent sends an event and shows the result. */
export function SendEvent({ onClose }: { onClose: () => void }) {
  const t = useT();
  const refresh = useRefresh();
  const [name, setName] = useState("");
  const [data, setData] = useState('{"id": 7, "amount": 120.5}');
  const [shape, setShape] = useState<string>();
  const m = useMutation({
    mutationFn: (body: unknown) => post("/api/v1/events/{name}", { path: { name }, body: body as never }),
    onSuccess: () => refresh("events"),
  });
  const error = m.error instanceof ApiError ? m.error : undefined;
  const others = error?.elsewhere(["name"]) ?? [];
  function submit() {
    let body: unknown;
    try {
      body = JSON.parse(data);
    } catch (e) {
      return setShape((e as Error).message);
    }
    setShape(undefined);
    m.mutate(body);
  }
  return (
    <Modal opened onClose={onClose} size="lg" title={t("event.send")} closeButtonProps={{ "aria-label": t("close") }}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          submit();
        }}
        noValidate
      >
        <Stack gap="sm">
          <TextInput
            label={t("event.name")}
            placeholder="orders.created"
            value={name}
            onChange={(e) => setName(e.currentTarget.value)}
            error={error?.at("name")}
            classNames={{ input: "mono" }}
            required
            data-autofocus
          />
          <Textarea
            label={t("event.json")}
            value={data}
            onChange={(e) => setData(e.currentTarget.value)}
            error={shape}
            autosize
            minRows={3}
            maxRows={14}
            classNames={{ input: "mono" }}
          />
          <Text size="xs" c="dimmed">
            {t("event.send.text")}
          </Text>
          {m.error && (others.length > 0 || !error?.problem.errors?.length) && (
            <Alert color="red" variant="light" role="alert">
              {others.join("; ") || errorText(t, m.error)}
            </Alert>
          )}
          {m.data && (
            <div role="status" className="answer">
              <Text size="sm" fw={600}>
                {t("event.accepted", { n: m.data.run_ids.length })}
              </Text>
              {m.data.deliveries.length ? (
                <Deliveries of={m.data.deliveries} />
              ) : (
                <Text size="sm">{t("event.nomatch")}</Text>
              )}
            </div>
          )}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              {t("close")}
            </Button>
            <Button type="submit" loading={m.isPending} disabled={!name}>
              {t("event.send.go")}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
