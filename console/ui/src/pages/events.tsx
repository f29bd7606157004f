import { ActionIcon, Alert, Button, Group, Menu, Modal, Stack, Switch, Text, Textarea, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { ApiError, call, get, post, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useFilters, useListKeys, useTitle } from "../lib/hooks";
import { useMay } from "../lib/me";
import { Confirm, useComplain, useRefresh } from "../parts/actions";
import { Empty, ErrorNote, errorText, Facts, Icon, icons, Instant, PageHead, Section, Snippet } from "../parts/basics";
import { SearchField } from "../parts/filters";
import { Pages } from "../parts/pages";
import { eventCommand } from "../parts/snippets";
import { TriggerForm } from "../parts/triggerform";

type Event = Schemas["Event"];
type Trigger = Schemas["EventTrigger"];

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
      <Triggers />
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
                    <td className="grow mono">{e.name}</td>
                    <td className="message">
                      <Deliveries of={e.deliveries} />
                    </td>
                    <td className="mid">
                      {e.sent_by || e.source} <span className="faint">{e.via}</span>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </Pages>
      </Section>
      {shown && <Look id={shown} onClose={() => setShown(undefined)} />}
      {sending && <Send onClose={() => setSending(false)} />}
    </>
  );
}

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

function Deliveries({ of }: { of: Event["deliveries"] }) {
  const t = useT();
  return of.map((d) => (
    <div key={d.trigger_id}>
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
}

function Look({ id, onClose }: { id: string; onClose: () => void }) {
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

/** Send sends an event and shows the result. */
function Send({ onClose }: { onClose: () => void }) {
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

function Triggers() {
  const t = useT();
  const may = useMay();
  const refresh = useRefresh();
  const [form, setForm] = useState<Trigger | "new">();
  const [deleting, setDeleting] = useState<Trigger>();
  const add = may.operate && (
    <Button
      size="compact-xs"
      w="fit-content"
      variant="default"
      leftSection={<Icon d={icons.plus} size={12} />}
      onClick={() => setForm("new")}
    >
      {t("trigger.new")}
    </Button>
  );
  return (
    <Section title={t("event.triggers")} right={add}>
      <Pages<Trigger>
        name={["event-triggers"]}
        read={(cursor) => get("/api/v1/event-triggers", { query: { cursor, limit: 100 } })}
        empty={
          <Empty title={t("trigger.none")}>
            <Text size="sm">{t("trigger.teach")}</Text>
            {add}
          </Empty>
        }
      >
        {(items) => (
          <table className="list">
            <thead>
              <tr>
                <th>{t("event.name")}</th>
                <th>{t("field.job")}</th>
                <th className="mid">{t("event.filter")}</th>
                <th className="wide">{t("field.param")}</th>
                <th>{t("job.enabled")}</th>
                {may.operate && (
                  <th>
                    <span className="sr-only">{t("actions")}</span>
                  </th>
                )}
              </tr>
            </thead>
            <tbody>
              {items.map((e) => (
                <tr key={e.id}>
                  <td className="grow mono">
                    {may.operate ? (
                      <button type="button" className="row-button mono" onClick={() => setForm(e)}>
                        {e.name}
                      </button>
                    ) : (
                      e.name
                    )}
                  </td>
                  <td className="grow">
                    <Link href={`/jobs/${e.job_id}`} className="plain-link">
                      {e.job_name}
                    </Link>{" "}
                    <span className="faint">{e.group}</span>
                  </td>
                  <td className="mid mono message">{e.filter || <span className="faint">{t("trigger.all")}</span>}</td>
                  <td className="wide mono message">{e.param || <span className="faint">{t("trigger.data")}</span>}</td>
                  <td>
                    <Toggle trigger={e} />
                  </td>
                  {may.operate && (
                    <td className="row-actions">
                      <Menu position="bottom-end">
                        <Menu.Target>
                          <ActionIcon variant="subtle" color="gray" size="sm" aria-label={t("more", { name: e.name })}>
                            ⋯
                          </ActionIcon>
                        </Menu.Target>
                        <Menu.Dropdown>
                          <Menu.Item onClick={() => setForm(e)}>{t("edit")}</Menu.Item>
                          <Menu.Item color="red" onClick={() => setDeleting(e)}>
                            {t("delete")}
                          </Menu.Item>
                        </Menu.Dropdown>
                      </Menu>
                    </td>
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Pages>
      {form && <TriggerForm trigger={form === "new" ? undefined : form} onClose={() => setForm(undefined)} />}
      {deleting && (
        <Confirm
          title={t("trigger.delete", { name: deleting.name, job: deleting.job_name })}
          text={t("trigger.delete.text")}
          action={t("delete")}
          onClose={() => setDeleting(undefined)}
          onConfirm={async () => {
            await call("delete", "/api/v1/event-triggers/{id}", { path: { id: deleting.id } });
            await refresh("event-triggers");
          }}
        />
      )}
    </Section>
  );
}

function Toggle({ trigger }: { trigger: Trigger }) {
  const t = useT();
  const may = useMay();
  const refresh = useRefresh();
  const m = useMutation({
    mutationFn: (enabled: boolean) =>
      call("patch", "/api/v1/event-triggers/{id}", { path: { id: trigger.id }, body: { enabled } }),
    onError: useComplain(),
    onSettled: () => refresh("event-triggers"),
  });
  return (
    <Switch
      size="sm"
      checked={m.isPending ? m.variables : trigger.enabled}
      disabled={!may.operate}
      onChange={(e) => m.mutate(e.currentTarget.checked)}
      aria-label={t("job.enable", { name: trigger.name })}
    />
  );
}
