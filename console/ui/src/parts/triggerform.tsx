import { Alert, Button, Group, Modal, Stack, Switch, Textarea, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError, call, post, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useRefresh } from "./actions";
import { errorText } from "./basics";
import { JobPick } from "./jobpick";

type Trigger = Schemas["EventTrigger"];

/** TriggerForm creates or changes an event trigger. */
export function TriggerForm({ trigger, onClose }: { trigger?: Trigger; onClose: () => void }) {
  const t = useT();
  const refresh = useRefresh();
  const [d, setD] = useState({
    name: trigger?.name ?? "",
    job_id: trigger?.job_id ?? 0,
    filter: trigger?.filter ?? "",
    param: trigger?.param ?? "",
    enabled: trigger?.enabled ?? true,
  });
  const set = (c: Partial<typeof d>) => setD((before) => ({ ...before, ...c }));
  const save = useMutation({
    mutationFn: () =>
      trigger
        ? call("put", "/api/v1/event-triggers/{id}", { path: { id: trigger.id }, body: d, version: trigger.version })
        : post("/api/v1/event-triggers", { body: d }),
    onSuccess: async () => {
      await refresh("event-triggers");
      onClose();
    },
  });
  const error = save.error instanceof ApiError ? save.error : undefined;
  const others = error?.elsewhere(["name", "job_id", "filter", "param"]) ?? [];
  const below = {
    inputWrapperOrder: ["label", "input", "description", "error"] as ("label" | "input" | "description" | "error")[],
  };
  return (
    <Modal
      opened
      onClose={onClose}
      size="lg"
      title={trigger ? trigger.name : t("trigger.new")}
      closeOnClickOutside={false}
      closeButtonProps={{ "aria-label": t("close") }}
    >
      <form
        onSubmit={(e) => {
          e.preventDefault();
          save.mutate();
        }}
        noValidate
      >
        <Stack gap="sm">
          <TextInput
            label={t("event.name")}
            description={t("trigger.name.help")}
            {...below}
            placeholder="orders.*"
            value={d.name}
            onChange={(e) => set({ name: e.currentTarget.value })}
            error={error?.at("name")}
            classNames={{ input: "mono" }}
            required
            data-autofocus
          />
          <JobPick
            label={t("trigger.job")}
            value={d.job_id || undefined}
            onChange={(id) => set({ job_id: id ?? 0 })}
            error={error?.at("job_id")}
            required
          />
          <Textarea
            label={t("event.filter")}
            description={t("trigger.filter.help")}
            {...below}
            placeholder="event.data.amount > 100.0"
            value={d.filter}
            onChange={(e) => set({ filter: e.currentTarget.value })}
            error={error?.at("filter")}
            autosize
            minRows={1}
            maxRows={8}
            classNames={{ input: "mono" }}
          />
          <Textarea
            label={t("field.param")}
            description={t("trigger.param.help")}
            {...below}
            placeholder="order {{.event.data.id}} of {{.event.name}}"
            value={d.param}
            onChange={(e) => set({ param: e.currentTarget.value })}
            error={error?.at("param")}
            autosize
            minRows={1}
            maxRows={8}
            classNames={{ input: "mono" }}
          />
          <Switch
            label={t("job.enabled")}
            checked={d.enabled}
            onChange={(e) => set({ enabled: e.currentTarget.checked })}
          />
          {save.error && (others.length > 0 || !error?.problem.errors?.length) && (
            <Alert color="red" variant="light" role="alert">
              {others.join("; ") || errorText(t, save.error)}
            </Alert>
          )}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              {t("cancel")}
            </Button>
            <Button type="submit" loading={save.isPending}>
              {t("save")}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
