import { ActionIcon, Button, Menu, Switch, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { call, get, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useMay } from "../lib/me";
import { Confirm, useComplain, useRefresh } from "./actions";
import { Empty, Icon, icons, Section } from "./basics";
import { Pages } from "./pages";
import { TriggerForm } from "./triggerform";

type Trigger = Schemas["EventTrigger"];

/** EventTriggers lists the triggers: which event starts which job. */
export function EventTriggers() {
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
                      <button type="button" className="row-button mono clamp" onClick={() => setForm(e)}>
                        {e.name}
                      </button>
                    ) : (
                      e.name
                    )}
                  </td>
                  <td className="grow">
                    <div className="clamp">
                      <Link href={`/jobs/${e.job_id}`} className="plain-link" title={e.job_name}>
                        {e.job_name}
                      </Link>{" "}
                      <span className="faint">{e.group}</span>
                    </div>
                  </td>
                  <td className="mid mono message">
                    <div className="clamp" title={e.filter}>
                      {e.filter || <span className="faint">{t("trigger.all")}</span>}
                    </div>
                  </td>
                  <td className="wide mono message">
                    <div className="clamp" title={e.param}>
                      {e.param || <span className="faint">{t("trigger.data")}</span>}
                    </div>
                  </td>
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
