import { Button, Switch, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { call, get, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useMay } from "../lib/me";
import { useComplain, useRefresh } from "./actions";
import { Empty, Section } from "./basics";
import { Icon, icons } from "./icons";
import { ListTable } from "./listtable";
import { Pages } from "./pages";
import { TriggerForm } from "./triggerform";

type Trigger = Schemas["EventTrigger"];

/** EventTriggers lists the triggers: which event starts which job. */
export function EventTriggers() {
  const t = useT();
  const may = useMay();
  const [form, setForm] = useState<Trigger | "new">();
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
          <ListTable
            items={items}
            id={(e) => e.id}
            name={(e) => e.name}
            columns={[
              {
                head: t("event.name"),
                className: "grow mono",
                cell: (e) =>
                  may.operate ? (
                    <button type="button" className="row-button mono clamp" onClick={() => setForm(e)}>
                      {e.name}
                    </button>
                  ) : (
                    e.name
                  ),
              },
              {
                head: t("field.job"),
                className: "grow",
                cell: (e) => (
                  <div className="clamp">
                    <Link href={`/jobs/${e.job_id}`} className="plain-link" title={e.job_name}>
                      {e.job_name}
                    </Link>{" "}
                    <span className="faint">{e.group}</span>
                  </div>
                ),
              },
              {
                head: t("event.filter"),
                className: "mid mono message",
                cell: (e) => (
                  <div className="clamp" title={e.filter}>
                    {e.filter || <span className="faint">{t("trigger.all")}</span>}
                  </div>
                ),
              },
              {
                head: t("field.param"),
                className: "wide mono message",
                cell: (e) => (
                  <div className="clamp" title={e.param}>
                    {e.param || <span className="faint">{t("trigger.data")}</span>}
                  </div>
                ),
              },
              { head: t("job.enabled"), cell: (e) => <Toggle trigger={e} /> },
            ]}
            actions={may.operate ? (e) => [{ label: t("edit"), run: () => setForm(e) }] : undefined}
            removal={
              may.operate
                ? {
                    title: (e) => t("trigger.delete", { name: e.name, job: e.job_name }),
                    text: t("trigger.delete.text"),
                    run: (e) => call("delete", "/api/v1/event-triggers/{id}", { path: { id: e.id } }),
                    refresh: "event-triggers",
                  }
                : undefined
            }
          />
        )}
      </Pages>
      {form && <TriggerForm trigger={form === "new" ? undefined : form} onClose={() => setForm(undefined)} />}
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
