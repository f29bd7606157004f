import { Button, Modal, Select, Stack, Text, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError, post } from "../api/client";
import { useT } from "../i18n";
import { useServers } from "../lib/executors";
import { useRefresh } from "./actions";
import { errorText, Snippet } from "./basics";
import { ReasonDialog } from "./reasondialog";
import { joinCommand } from "./snippets";

const overlaps = ["", "1h", "24h", "72h", "168h"] as const;

export function ReplaceToken({
  group,
  onClose,
  onToken,
}: {
  group: string;
  onClose: () => void;
  onToken: (token: string) => void;
}) {
  const t = useT();
  const refresh = useRefresh();
  const [overlap, setOverlap] = useState<string>("");
  const m = useMutation({
    mutationFn: () => post("/api/v1/groups/{name}/token", { path: { name: group }, body: overlap ? { overlap } : {} }),
    onSuccess: async (made) => {
      onToken(made.token);
      onClose();
      await refresh("groups");
    },
  });
  return (
    <Modal opened onClose={onClose} title={t("group.token")} closeButtonProps={{ "aria-label": t("close") }}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          m.mutate();
        }}
      >
        <Stack gap="sm">
          <Select
            label={t("group.token.overlap")}
            data={overlaps.map((o) => ({
              value: o,
              label: t(o ? `group.token.overlap.${o}` : "group.token.overlap.none"),
            }))}
            value={overlap}
            allowDeselect={false}
            onChange={(o) => setOverlap(o ?? "")}
          />
          <Text size="sm">{t(overlap ? "group.token.text.overlap" : "group.token.text")}</Text>
          {m.error && (
            <Text c="var(--bad)" size="sm" role="alert">
              {errorText(t, m.error)}
            </Text>
          )}
          <Button type="submit" loading={m.isPending}>
            {t("group.token.go")}
          </Button>
        </Stack>
      </form>
    </Modal>
  );
}

export function ShowToken({ group, token, onClose }: { group: string; token: string; onClose: () => void }) {
  const t = useT();
  return (
    <Modal
      opened
      onClose={onClose}
      size="lg"
      title={t("group.token.new", { name: group })}
      closeOnClickOutside={false}
      closeButtonProps={{ "aria-label": t("close") }}
    >
      <Text size="sm">{t("group.token.once")}</Text>
      <Snippet code={token} />
      <Text size="sm" mt="sm">
        {t("group.join")}
      </Text>
      <Snippet code={joinCommand(group, token, useServers())} />
    </Modal>
  );
}

export function PauseGroup({ group, onClose }: { group: string; onClose: () => void }) {
  const t = useT();
  const refresh = useRefresh();
  return (
    <ReasonDialog
      title={t("group.pause.title", { name: group })}
      text={t("group.pause.text")}
      label={t("group.reason")}
      field="reason"
      required
      action={t("group.pause")}
      save={async (words) => {
        await post("/api/v1/groups/{name}/pause", { path: { name: group }, body: words });
        await refresh("groups", "attention");
      }}
      onClose={onClose}
    />
  );
}

export function NewGroup({ onClose }: { onClose: () => void }) {
  const t = useT();
  const refresh = useRefresh();
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const m = useMutation({
    mutationFn: () => post("/api/v1/groups", { body: { name, description } }),
    onSuccess: () => refresh("groups"),
  });
  const error = m.error instanceof ApiError ? m.error : undefined;
  if (m.data) return <ShowToken group={m.data.name} token={m.data.token} onClose={onClose} />;
  return (
    <Modal opened onClose={onClose} title={t("group.new")} closeButtonProps={{ "aria-label": t("close") }}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          m.mutate();
        }}
      >
        <Stack gap="sm">
          <TextInput
            label={t("field.name")}
            value={name}
            onChange={(e) => setName(e.currentTarget.value)}
            error={error?.at("name")}
            data-autofocus
            required
          />
          <TextInput
            label={t("field.description")}
            value={description}
            onChange={(e) => setDescription(e.currentTarget.value)}
            error={error?.at("description")}
          />
          {m.error && !error?.problem.errors?.length && (
            <Text c="var(--bad)" size="sm" role="alert">
              {errorText(t, m.error)}
            </Text>
          )}
          <Button type="submit" loading={m.isPending}>
            {t("save")}
          </Button>
        </Stack>
      </form>
    </Modal>
  );
}
