import { Button, Group, Modal, Stack, Switch, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { call, post, type Job } from "../api/client";
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
