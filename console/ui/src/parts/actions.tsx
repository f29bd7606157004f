import { Button, Group, Modal, Select, Stack, Switch, Text, Textarea } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";
import { ApiError, call, get, post, type Job } from "../api/client";
import { useT } from "../i18n";
import { useMay } from "../lib/me";
import { errorText } from "./basics";

/** useRefresh returns a function that reads lists again after a change. */
export function useRefresh() {
  const client = useQueryClient();
  return (...keys: string[]) => Promise.all(keys.map((k) => client.invalidateQueries({ queryKey: [k] })));
}

export function useComplain() {
  const t = useT();
  return (e: unknown) =>
    notifications.show({ color: "red", title: t("error.title"), message: errorText(t, e), autoClose: 10_000 });
}

export function EnableSwitch({ job, label }: { job: Job; label?: boolean }) {
  const t = useT();
  const may = useMay();
  const refresh = useRefresh();
  const complain = useComplain();
  const m = useMutation({
    mutationFn: (on: boolean) =>
      post(on ? "/api/v1/jobs/{id}/enable" : "/api/v1/jobs/{id}/disable", { path: { id: job.id } }),
    onError: complain,
    onSettled: () => refresh("jobs", "job"),
  });
  const on = m.isPending ? m.variables : job.enabled;
  return (
    <Switch
      size="sm"
      checked={on}
      disabled={!may.operate}
      onChange={(e) => m.mutate(e.currentTarget.checked)}
      label={label ? t(on ? "job.enabled" : "job.disabled") : undefined}
      aria-label={label ? undefined : t("job.enable", { name: job.name })}
    />
  );
}

/** RunNow asks for the param, starts a run and opens its page. The default param is the job's. */
export function RunNow({ job, onClose }: { job: Job; onClose: () => void }) {
  const t = useT();
  const [, navigate] = useLocation();
  const refresh = useRefresh();
  const [param, setParam] = useState(job.param);
  const [instance, setInstance] = useState<string | null>(null);
  const instances = useQuery({
    queryKey: ["instances", job.group],
    queryFn: () => get("/api/v1/groups/{name}/instances", { path: { name: job.group } }),
  });
  const m = useMutation({
    mutationFn: () =>
      post("/api/v1/jobs/{id}/trigger", {
        path: { id: job.id },
        body: { ...(param === job.param ? {} : { param }), ...(instance ? { instance } : {}) },
      }),
    onSuccess: (a) => {
      void refresh("runs", "job-runs");
      onClose();
      if (a.run_ids[0]) navigate(`/runs/${a.run_ids[0]}`);
    },
  });
  const error = m.error instanceof ApiError ? m.error : undefined;
  return (
    <Modal
      opened
      onClose={onClose}
      title={t("run.now.title", { name: job.name })}
      closeButtonProps={{ "aria-label": t("close") }}
    >
      <form
        onSubmit={(e) => {
          e.preventDefault();
          m.mutate();
        }}
      >
        <Stack gap="sm">
          <Textarea
            label={t("field.param")}
            value={param}
            onChange={(e) => setParam(e.currentTarget.value)}
            autosize
            minRows={2}
            maxRows={12}
            classNames={{ input: "mono" }}
            error={error?.at("param")}
            data-autofocus
          />
          <Select
            label={t("field.instance")}
            placeholder={t("run.now.any")}
            data={instances.data?.items.map((i) => i.id) ?? []}
            value={instance}
            onChange={setInstance}
            clearable
            error={error?.at("instance")}
          />
          {m.error && (
            <Text c="var(--bad)" size="sm" role="alert">
              {errorText(t, m.error)}
            </Text>
          )}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              {t("cancel")}
            </Button>
            <Button type="submit" loading={m.isPending}>
              {t("run.now")}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

/** Confirm asks for a confirmation before an action that cannot be undone. */
export function Confirm({
  title,
  text,
  action,
  onConfirm,
  onClose,
}: {
  title: string;
  text: string;
  action: string;
  onConfirm: () => Promise<unknown>;
  onClose: () => void;
}) {
  const t = useT();
  const m = useMutation({ mutationFn: onConfirm, onSuccess: onClose });
  return (
    <Modal opened onClose={onClose} title={title} closeButtonProps={{ "aria-label": t("close") }}>
      <Stack gap="sm">
        <Text size="sm">{text}</Text>
        {m.error && (
          <Text c="var(--bad)" size="sm" role="alert">
            {errorText(t, m.error)}
          </Text>
        )}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose} data-autofocus>
            {t("cancel")}
          </Button>
          <Button color="red" loading={m.isPending} onClick={() => m.mutate()}>
            {action}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}

export function DeleteJob({ job, onClose, onDone }: { job: Job; onClose: () => void; onDone?: () => void }) {
  const t = useT();
  const refresh = useRefresh();
  return (
    <Confirm
      title={t("job.delete.title", { name: job.name })}
      text={t("job.delete.text")}
      action={t("delete")}
      onClose={onClose}
      onConfirm={async () => {
        await call("delete", "/api/v1/jobs/{id}", { path: { id: job.id } });
        await refresh("jobs");
        onDone?.();
      }}
    />
  );
}
