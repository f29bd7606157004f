import {
  ActionIcon,
  Alert,
  Button,
  Group,
  Menu,
  Modal,
  MultiSelect,
  NumberInput,
  PasswordInput,
  SegmentedControl,
  Select,
  SimpleGrid,
  Stack,
  TagsInput,
  Text,
  Textarea,
  TextInput,
} from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { ApiError, call, get, post, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useTitle } from "../lib/hooks";
import { Confirm, useComplain, useRefresh } from "../parts/actions";
import { Empty, errorText, Icon, icons, Instant, PageHead, Section, Snippet } from "../parts/basics";
import { useGroups } from "../parts/filters";
import { Pages } from "../parts/pages";
import { channelFile } from "../parts/snippets";

type Channel = Schemas["Channel"];
type Body = Schemas["ChannelBody"];
type Kind = Channel["kind"];
const kinds = ["email", "webhook", "slack", "dingtalk", "wecom", "feishu"] as const;

export default function Channels() {
  const t = useT();
  useTitle(t("nav.channels"));
  const refresh = useRefresh();
  const [form, setForm] = useState<Channel | "new">();
  const [deleting, setDeleting] = useState<Channel>();
  const add = (
    <Button size="xs" w="fit-content" leftSection={<Icon d={icons.plus} size={14} />} onClick={() => setForm("new")}>
      {t("channel.new")}
    </Button>
  );
  return (
    <>
      <PageHead title={t("nav.channels")}>{add}</PageHead>
      <Pages<Channel>
        name={["alert-channels"]}
        read={(cursor) => get("/api/v1/alert-channels", { query: { cursor, limit: 100 } })}
        empty={
          <Empty title={t("channel.none")}>
            <Text size="sm">{t("channel.teach")}</Text>
            {add}
            <details>
              <summary>{t("channel.cli")}</summary>
              <Snippet code={channelFile} />
            </details>
          </Empty>
        }
      >
        {(items) => (
          <table className="list">
            <thead>
              <tr>
                <th>{t("field.name")}</th>
                <th>{t("channel.kind")}</th>
                <th className="mid">{t("channel.to")}</th>
                <th className="wide">{t("audit.when")}</th>
                <th>
                  <span className="sr-only">{t("actions")}</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {items.map((c) => (
                <tr key={c.name}>
                  <td className="grow">
                    <button type="button" className="row-button" onClick={() => setForm(c)}>
                      {c.name}
                    </button>
                    <div className="faint">{c.description}</div>
                  </td>
                  <td>{t(`channel.kind.${c.kind}`)}</td>
                  <td className="mid message">{c.email ? c.email.to.join(", ") : c.url}</td>
                  <td className="wide num">
                    <Instant at={c.updated_at} />
                  </td>
                  <td className="row-actions">
                    <Group gap={2} wrap="nowrap" justify="flex-end">
                      <Test name={c.name} />
                      <Menu position="bottom-end">
                        <Menu.Target>
                          <ActionIcon variant="subtle" color="gray" size="sm" aria-label={t("more", { name: c.name })}>
                            ⋯
                          </ActionIcon>
                        </Menu.Target>
                        <Menu.Dropdown>
                          <Menu.Item onClick={() => setForm(c)}>{t("edit")}</Menu.Item>
                          <Menu.Item color="red" onClick={() => setDeleting(c)}>
                            {t("delete")}
                          </Menu.Item>
                        </Menu.Dropdown>
                      </Menu>
                    </Group>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Pages>
      <div className="below">
        <SentAlerts />
      </div>
      {form && <ChannelForm channel={form === "new" ? undefined : form} onClose={() => setForm(undefined)} />}
      {deleting && (
        <Confirm
          title={t("channel.delete", { name: deleting.name })}
          text={t("channel.delete.text")}
          action={t("delete")}
          onClose={() => setDeleting(undefined)}
          onConfirm={async () => {
            await call("delete", "/api/v1/alert-channels/{name}", { path: { name: deleting.name } });
            await refresh("alert-channels");
          }}
        />
      )}
    </>
  );
}

function useTest() {
  const t = useT();
  return useMutation({
    mutationFn: (name: string) => post("/api/v1/alert-channels/{name}/test", { path: { name } }),
    onSuccess: (a) =>
      notifications.show({
        color: a.delivered ? "blue" : "red",
        message: t(a.delivered ? "channel.sent" : "channel.failed", { detail: a.detail }),
        autoClose: 10_000,
      }),
    onError: useComplain(),
  });
}

function Test({ name }: { name: string }) {
  const t = useT();
  const m = useTest();
  return (
    <Button size="compact-xs" variant="default" loading={m.isPending} onClick={() => m.mutate(name)}>
      {t("channel.test")}
    </Button>
  );
}

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
const signed: Kind[] = ["webhook", "dingtalk", "feishu"];
const examples: Record<Exclude<Kind, "email">, string> = {
  webhook: "https://example.org/hooks/belfry",
  slack: "https://hooks.slack.com/services/…",
  dingtalk: "https://oapi.dingtalk.com/robot/send?access_token=…",
  wecom: "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=…",
  feishu: "https://open.feishu.cn/open-apis/bot/v2/hook/…",
};

/** ChannelForm creates or changes a channel. Stored secrets are not shown. An empty field keeps the stored secret. */
function ChannelForm({ channel, onClose }: { channel?: Channel; onClose: () => void }) {
  const t = useT();
  const refresh = useRefresh();
  const test = useTest();
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
  const kept = channel && channel.kind === c.kind;
  const below = {
    inputWrapperOrder: ["label", "input", "description", "error"] as ("label" | "input" | "description" | "error")[],
  };
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
            <>
              <SimpleGrid cols={{ base: 1, xs: 3 }} spacing="sm">
                <TextInput
                  label={t("channel.host")}
                  placeholder="smtp.example.org"
                  value={email.host}
                  onChange={(e) => setEmail({ host: e.currentTarget.value })}
                  error={at("email.host")}
                  required
                />
                <Select
                  label={t("channel.tls")}
                  allowDeselect={false}
                  data={[
                    { value: "starttls", label: "STARTTLS" },
                    { value: "tls", label: "TLS" },
                    { value: "none", label: t("none") },
                  ]}
                  value={email.tls ?? "starttls"}
                  onChange={(v) => setEmail({ tls: v as "tls", port: undefined })}
                  error={at("email.tls")}
                />
                <NumberInput
                  label={t("channel.port")}
                  placeholder={{ starttls: "587", tls: "465", none: "25" }[email.tls ?? "starttls"]}
                  min={1}
                  max={65535}
                  value={email.port ?? ""}
                  onChange={(n) => setEmail({ port: Number(n) || undefined })}
                  error={at("email.port")}
                />
              </SimpleGrid>
              <SimpleGrid cols={{ base: 1, xs: 2 }} spacing="sm">
                <TextInput
                  label={t("channel.username")}
                  description={t("channel.username.help")}
                  {...below}
                  value={email.username ?? ""}
                  onChange={(e) => setEmail({ username: e.currentTarget.value })}
                  error={at("email.username")}
                  autoComplete="off"
                />
                <PasswordInput
                  label={t("login.password")}
                  description={kept && channel.email?.username ? t("channel.kept") : undefined}
                  {...below}
                  value={email.password ?? ""}
                  onChange={(e) => setEmail({ password: e.currentTarget.value })}
                  error={at("email.password")}
                  autoComplete="new-password"
                  visibilityToggleButtonProps={{ "aria-label": t("login.show") }}
                />
              </SimpleGrid>
              <TextInput
                label={t("channel.from")}
                placeholder="Belfry <belfry@example.org>"
                value={email.from}
                onChange={(e) => setEmail({ from: e.currentTarget.value })}
                error={at("email.from")}
                required
              />
              <TagsInput
                label={t("channel.recipients")}
                placeholder="ops@example.org"
                value={email.to}
                onChange={(to) => setEmail({ to })}
                error={at("email.to")}
                splitChars={[",", ";", " "]}
                required
              />
            </>
          ) : (
            <>
              <TextInput
                label="URL"
                type="url"
                placeholder={(kept && channel.url) || examples[c.kind]}
                description={kept ? t("channel.kept") : undefined}
                {...below}
                value={c.url ?? ""}
                onChange={(e) => set({ url: e.currentTarget.value })}
                error={at("url")}
                required={!kept}
                classNames={{ input: "mono" }}
                autoComplete="off"
              />
              {signed.includes(c.kind) && (
                <PasswordInput
                  label={t("channel.secret")}
                  description={`${t(`channel.secret.${c.kind as "webhook"}`)}${kept ? ` ${t("channel.kept")}` : ""}`}
                  {...below}
                  value={c.secret ?? ""}
                  onChange={(e) => set({ secret: e.currentTarget.value })}
                  error={at("secret")}
                  autoComplete="new-password"
                  visibilityToggleButtonProps={{ "aria-label": t("login.show") }}
                />
              )}
            </>
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
          <details open={!!(c.subject || c.text || at("subject") || at("text"))}>
            <summary>{t("channel.words")}</summary>
            <Stack gap="sm" mt="xs">
              <SegmentedControl
                size="xs"
                w="fit-content"
                aria-label={t("channel.language")}
                value={c.language ?? "en"}
                onChange={(l) => set({ language: l as "en" })}
                data={[
                  { value: "en", label: "English" },
                  { value: "zh", label: "简体中文" },
                ]}
              />
              <TextInput
                label={t("channel.subject")}
                placeholder="{{.job}}: {{.kind}}"
                value={c.subject ?? ""}
                onChange={(e) => set({ subject: e.currentTarget.value })}
                error={at("subject")}
                classNames={{ input: "mono" }}
              />
              <Textarea
                label={t("channel.text")}
                description={t("channel.text.help")}
                {...below}
                autosize
                minRows={3}
                maxRows={12}
                value={c.text ?? ""}
                onChange={(e) => set({ text: e.currentTarget.value })}
                error={at("text")}
                classNames={{ input: "mono" }}
              />
            </Stack>
          </details>
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

const deliveryClass = { pending: "pill-warn", delivered: "pill-good", failed: "pill-bad" } as const;

/** SentAlerts lists the sent alerts, and the result of each delivery. */
function SentAlerts() {
  const t = useT();
  return (
    <Section title={t("alerts.told")}>
      <Pages<Schemas["AlertEntry"]>
        name={["alerts"]}
        read={(cursor) => get("/api/v1/alerts", { query: { cursor, limit: 25 } })}
        empty={
          <Text size="sm" c="dimmed">
            {t("alerts.none")}
          </Text>
        }
      >
        {(items) => (
          <table className="list">
            <thead>
              <tr>
                <th>{t("audit.when")}</th>
                <th>{t("field.job")}</th>
                <th>{t("alerts.what")}</th>
                <th>{t("alerts.deliveries")}</th>
              </tr>
            </thead>
            <tbody>
              {items.map((a) => (
                <tr key={a.id}>
                  <td className="num">
                    <Instant at={a.at} now={new Date()} />
                  </td>
                  <td className="grow">
                    {a.job_id ? (
                      <Link className="plain-link" href={`/jobs/${a.job_id}`}>
                        {a.job}
                      </Link>
                    ) : (
                      a.job
                    )}{" "}
                    <span className="faint">{a.group}</span>
                  </td>
                  <td>
                    {a.run_id ? (
                      <Link className="row-link" href={`/runs/${a.run_id}`}>
                        {t(`alert.${a.kind}`)}
                      </Link>
                    ) : (
                      t(`alert.${a.kind}`)
                    )}
                    {(a.count ?? 0) > 1 && <span className="faint"> ×{a.count}</span>}
                  </td>
                  <td className="message">
                    {a.deliveries.map((d) => (
                      <div key={d.channel}>
                        <span className={`pill ${deliveryClass[d.state]}`}>{t(`delivery.${d.state}`)}</span> {d.channel}
                        {d.tries > 1 && <span className="faint"> {t("alerts.tries", { n: d.tries })}</span>}
                        {d.error && <div className="bad">{d.error}</div>}
                      </div>
                    ))}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Pages>
    </Section>
  );
}
