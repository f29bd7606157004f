import { Alert, Button, Group, Modal, MultiSelect, Select, SimpleGrid, Stack, Text, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError, call, post } from "../api/client";
import { useT } from "../i18n";
import { useRefresh } from "./actions";
import { errorText } from "./basics";
import { AddressFields, below, EmailFields, signed, Words, type Body, type Channel, type Kind } from "./channelfields";
import { useChannelTest } from "./channeltest";
import { useGroups } from "./filters";

const kinds = ["email", "webhook", "slack", "dingtalk", "wecom", "feishu"] as const;
const fields = [
  "name",
  "kind",
  "groups",
  "description",
  "language",
  "subject",
  "text",
  "url",
  "secret",
  "email.host",
  "email.port",
  "email.tls",
  "email.username",
  "email.password",
  "email.from",
  "email.to",
];
/** ChannelForm creates or changes a channel. Stored secrets are not shown. An empty field keeps the stored secret. */
export function ChannelForm({ channel, onClose }: { channel?: Channel; onClose: () => void }) {
  const t = useT();
  const refresh = useRefresh();
  const test = useChannelTest();
  const groups = useGroups();
  const [c, setC] = useState<Body>(() =>
    channel
      ? {
          name: channel.name,
          kind: channel.kind,
          description: channel.description,
          language: channel.language,
          subject: channel.subject,
          text: channel.text,
          groups: channel.groups,
          ...(channel.email ? { email: { ...channel.email, password: "" } } : {}),
        }
      : { name: "", kind: "webhook", description: "", language: "en", subject: "", text: "" },
  );
  const set = (change: Partial<Body>) => setC((before) => ({ ...before, ...change }));
  const email = c.email ?? { host: "", from: "", to: [], tls: "starttls" as const };
  const setEmail = (change: Partial<NonNullable<Body["email"]>>) => set({ email: { ...email, ...change } });
  const save = useMutation({
    mutationFn: async (andTest: boolean) => {
      const { email: _, url, secret, ...rest } = c;
      void _;
      const body: Body = {
        ...rest,
        ...(c.kind === "email"
          ? { email: { ...email, password: email.password || undefined, username: email.username || undefined } }
          : { url: url || undefined, ...(signed.includes(c.kind) ? { secret: secret || undefined } : {}) }),
      };
      await (channel
        ? call("put", "/api/v1/alert-channels/{name}", { path: { name: channel.name }, body })
        : post("/api/v1/alert-channels", { body }));
      return andTest;
    },
    onSuccess: async (andTest) => {
      await refresh("alert-channels");
      if (andTest) test.mutate(c.name);
      onClose();
    },
  });
  const error = save.error instanceof ApiError ? save.error : undefined;
  const at = (f: string) => error?.at(f);
  const others = error?.elsewhere(fields) ?? [];
  const kept = channel?.kind === c.kind;
  return (
    <Modal
      opened
      onClose={onClose}
      size="lg"
      title={channel ? channel.name : t("channel.new")}
      closeOnClickOutside={false}
      closeButtonProps={{ "aria-label": t("close") }}
    >
      <form
        onSubmit={(e) => {
          e.preventDefault();
          save.mutate(false);
        }}
        noValidate
      >
        <Stack gap="sm">
          <SimpleGrid cols={{ base: 1, xs: 2 }} spacing="sm">
            <TextInput
              label={t("field.name")}
              value={c.name}
              onChange={(e) => set({ name: e.currentTarget.value })}
              error={at("name")}
              required
              readOnly={!!channel}
              data-autofocus={channel ? undefined : true}
            />
            <Select
              label={t("channel.kind")}
              data={kinds.map((k) => ({ value: k, label: t(`channel.kind.${k}`) }))}
              value={c.kind}
              allowDeselect={false}
              onChange={(k) =>
                set({
                  kind: k as Kind,
                  language: channel || k === "email" || k === "webhook" || k === "slack" ? c.language : "zh",
                })
              }
              error={at("kind")}
            />
          </SimpleGrid>
          <Text size="xs" c="dimmed">
            {t(`channel.kind.${c.kind}.help`)}
          </Text>
          {c.kind === "email" ? (
            <EmailFields email={email} set={setEmail} at={at} kept={kept ? channel : undefined} />
          ) : (
            <AddressFields c={c} kind={c.kind} set={set} at={at} kept={kept ? channel : undefined} />
          )}
          <TextInput
            label={t("field.description")}
            value={c.description ?? ""}
            onChange={(e) => set({ description: e.currentTarget.value })}
            error={at("description")}
          />
          <MultiSelect
            label={t("user.groups")}
            description={t("channel.groups.help")}
            {...below}
            data={groups.data?.items.map((g) => g.name) ?? c.groups ?? []}
            value={c.groups ?? []}
            onChange={(groups) => set({ groups })}
            error={at("groups")}
            searchable
          />
          <Words c={c} set={set} at={at} />
          {save.error && (others.length > 0 || !error?.problem.errors?.length) && (
            <Alert color="red" variant="light" role="alert">
              {others.length ? others.map((o) => <div key={o}>{o}</div>) : errorText(t, save.error)}
            </Alert>
          )}
          <Group justify="flex-end" gap="xs">
            <Button variant="default" onClick={onClose}>
              {t("cancel")}
            </Button>
            <Button variant="default" loading={save.isPending && save.variables} onClick={() => save.mutate(true)}>
              {t("channel.savetest")}
            </Button>
            <Button type="submit" loading={save.isPending && !save.variables}>
              {t("save")}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
