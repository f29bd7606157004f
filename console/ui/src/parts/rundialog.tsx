import { Button, Group, Modal, Select, Stack, Text, Textarea } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";
import { ApiError, get, post, type Job, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useRefresh } from "./actions";
import { errorText } from "./basics";

/** This text stands in a param for a secret, which only the server knows. */
const masked = "•••";

/**
 * RunDialog asks for a param and an instance, starts a run and opens its page. An unchanged param is not sent, so that the server uses the one
 * that it has, with its secrets.
 */
export function RunDialog({
  title,
  action,
  group,
  param: before,
  start,
  onClose,
}: {
  title: string;
  action: string;
  group: string;
  param: string;
  start: (body: { param?: string; instance?: string }) => Promise<Schemas["Accepted"]>;
  onClose: () => void;
}) {
  const t = useT();
  const [, navigate] = useLocation();
  const refresh = useRefresh();
  const [param, setParam] = useState(before);
  const [instance, setInstance] = useState<string | null>(null);
  const instances = useQuery({
    queryKey: ["instances", group],
    queryFn: () => get("/api/v1/groups/{name}/instances", { path: { name: group } }),
  });
  const m = useMutation({
    mutationFn: () => start({ ...(param === before ? {} : { param }), ...(instance ? { instance } : {}) }),
    onSuccess: (a) => {
      void refresh("runs", "job-runs");
      onClose();
      if (a.run_ids[0]) navigate(`/runs/${a.run_ids[0]}`);
    },
  });
  const error = m.error instanceof ApiError ? m.error : undefined;
  return (
    <Modal opened onClose={onClose} title={title} closeButtonProps={{ "aria-label": t("close") }}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          m.mutate();
        }}
      >
        <Stack gap="sm">
          <Textarea
            label={t("field.param")}
            description={before.includes(masked) ? t("run.param.masked") : undefined}
            inputWrapperOrder={["label", "input", "description", "error"]}
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
              {action}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

/** RunNow asks for the param, starts a run and opens its page. The default param is the job's. */
export function RunNow({ job, onClose }: { job: Job; onClose: () => void }) {
  const t = useT();
  return (
    <RunDialog
      title={t("run.now.title", { name: job.name })}
      action={t("run.now")}
      group={job.group}
      param={job.param}
      start={(body) => post("/api/v1/jobs/{id}/trigger", { path: { id: job.id }, body })}
      onClose={onClose}
    />
  );
}
