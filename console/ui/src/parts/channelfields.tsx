// The fields of a channel's form: where alerts go, and with which words.
import {
  NumberInput,
  PasswordInput,
  SegmentedControl,
  Select,
  SimpleGrid,
  Stack,
  TagsInput,
  Textarea,
  TextInput,
} from "@mantine/core";
import type { Schemas } from "../api/client";
import { useT } from "../i18n";

export type Channel = Schemas["Channel"];
export type Body = Schemas["ChannelBody"];
export type Kind = Channel["kind"];
type Email = NonNullable<Body["email"]>;

interface Fields {
  c: Body;
  set: (change: Partial<Body>) => void;
  at: (field: string) => string | undefined;
}

/** below puts the description of a field below its input. */
export const below = {
  inputWrapperOrder: ["label", "input", "description", "error"] as ("label" | "input" | "description" | "error")[],
};
/** signed lists the kinds of channels that have a secret. */
export const signed: Kind[] = ["webhook", "dingtalk", "feishu"];
const examples: Record<Exclude<Kind, "email">, string> = {
  webhook: "https://example.org/hooks/belfry",
  slack: "https://hooks.slack.com/services/…",
  dingtalk: "https://oapi.dingtalk.com/robot/send?access_token=…",
  wecom: "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=…",
  feishu: "https://open.feishu.cn/open-apis/bot/v2/hook/…",
};

/** EmailFields are the mail server, the sender and the recipients. kept is the stored channel, whose password stays if the field is empty. */
export function EmailFields({
  email,
  set,
  at,
  kept,
}: {
  email: Email;
  set: (change: Partial<Email>) => void;
  at: Fields["at"];
  kept?: Channel;
}) {
  const t = useT();
  return (
    <>
      <SimpleGrid cols={{ base: 1, xs: 3 }} spacing="sm">
        <TextInput
          label={t("channel.host")}
          placeholder="smtp.example.org"
          value={email.host}
          onChange={(e) => set({ host: e.currentTarget.value })}
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
          onChange={(v) => set({ tls: v as "tls", port: undefined })}
          error={at("email.tls")}
        />
        <NumberInput
          label={t("channel.port")}
          placeholder={{ starttls: "587", tls: "465", none: "25" }[email.tls ?? "starttls"]}
          min={1}
          max={65535}
          value={email.port ?? ""}
          onChange={(n) => set({ port: Number(n) || undefined })}
          error={at("email.port")}
        />
      </SimpleGrid>
      <SimpleGrid cols={{ base: 1, xs: 2 }} spacing="sm">
        <TextInput
          label={t("channel.username")}
          description={t("channel.username.help")}
          {...below}
          value={email.username ?? ""}
          onChange={(e) => set({ username: e.currentTarget.value })}
          error={at("email.username")}
          autoComplete="off"
        />
        <PasswordInput
          label={t("login.password")}
          description={kept?.email?.username ? t("channel.kept") : undefined}
          {...below}
          value={email.password ?? ""}
          onChange={(e) => set({ password: e.currentTarget.value })}
          error={at("email.password")}
          autoComplete="new-password"
          visibilityToggleButtonProps={{ "aria-label": t("login.show") }}
        />
      </SimpleGrid>
      <TextInput
        label={t("channel.from")}
        placeholder="Belfry <belfry@example.org>"
        value={email.from}
        onChange={(e) => set({ from: e.currentTarget.value })}
        error={at("email.from")}
        required
      />
      <TagsInput
        label={t("channel.recipients")}
        placeholder="ops@example.org"
        value={email.to}
        onChange={(to) => set({ to })}
        error={at("email.to")}
        splitChars={[",", ";", " "]}
        required
      />
    </>
  );
}

/** AddressFields are the URL and the secret of a channel that is not email. */
export function AddressFields({ c, kind, set, at, kept }: Fields & { kind: Exclude<Kind, "email">; kept?: Channel }) {
  const t = useT();
  return (
    <>
      <TextInput
        label="URL"
        type="url"
        placeholder={kept?.url || examples[kind]}
        description={kept ? t("channel.kept") : undefined}
        {...below}
        value={c.url ?? ""}
        onChange={(e) => set({ url: e.currentTarget.value })}
        error={at("url")}
        required={!kept}
        classNames={{ input: "mono" }}
        autoComplete="off"
      />
      {signed.includes(kind) && (
        <PasswordInput
          label={t("channel.secret")}
          description={`${t(`channel.secret.${kind as "webhook"}`)}${kept ? ` ${t("channel.kept")}` : ""}`}
          {...below}
          value={c.secret ?? ""}
          onChange={(e) => set({ secret: e.currentTarget.value })}
          error={at("secret")}
          autoComplete="new-password"
          visibilityToggleButtonProps={{ "aria-label": t("login.show") }}
        />
      )}
    </>
  );
}

/** Words are the texts of the alerts. Without them, alerts have Belfry's texts. */
export function Words({ c, set, at }: Fields) {
  const t = useT();
  return (
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
  );
}
