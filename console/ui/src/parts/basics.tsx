import { ActionIcon, Alert, Button, Code, CopyButton, Group, Stack, Text, Title, Tooltip } from "@mantine/core";
import type { ReactNode } from "react";
import { ApiError, type RunState } from "../api/client";
import { useT, type Key } from "../i18n";
import { useNow } from "../lib/hooks";
import { hasReason } from "../lib/states";
import { clock, dateTime, inWords, offset, shortDuration } from "../lib/time";
import { Icon, icons, shapes } from "./icons";

export const stateNames = (t: ReturnType<typeof useT>, s: RunState): string => t(`state.${s}`);

export function State({ state, reason, compact }: { state: RunState; reason?: string; compact?: boolean }) {
  const t = useT();
  const why = reason && hasReason(state) ? reasonText(t, reason) : "";
  return (
    <span
      className={`state state-${state}`}
      title={compact ? [t(`state.${state}`), why].filter(Boolean).join(": ") : undefined}
    >
      <Icon d={shapes[state]} size={14} />
      {compact ? <span className="sr-only">{t(`state.${state}`)}</span> : <span>{t(`state.${state}`)}</span>}
      {!compact && why && <span className="state-reason">{why}</span>}
    </span>
  );
}

const reasons = [
  "handler_error",
  "handler_panic",
  "handler_not_found",
  "timeout",
  "lost",
  "drained",
  "no_executor",
  "queue_full",
  "killed",
  "discarded",
  "covered",
  "job_deleted",
  "bad_script",
  "unsupported",
] as const;

/** reasonText translates a reason. An unknown reason is returned unchanged. */
export function reasonText(t: ReturnType<typeof useT>, reason: string): string {
  return (reasons as readonly string[]).includes(reason) ? t(`reason.${reason}` as Key) : reason;
}

export const causes = ["schedule", "misfire", "manual", "api", "event", "child", "backfill"] as const;
export const states = [
  "pending",
  "queued",
  "running",
  "retrying",
  "succeeded",
  "failed",
  "cancelled",
  "skipped",
] as const;
export const allReasons = reasons;

/** Instant shows an instant in the viewer's zone. Its tooltip also has UTC. */
export function Instant({ at, now }: { at: string | null | undefined; now?: Date }) {
  if (!at) return <span className="faint">–</span>;
  return (
    <time dateTime={at} title={`${dateTime(at)} ${offset(at)} · ${dateTime(at, "UTC")} UTC`}>
      {now ? clock(at, now) : dateTime(at)}
    </time>
  );
}

/** Countdown shows the time until an instant. */
export function Countdown({ at }: { at: string }) {
  const t = useT();
  const ms = new Date(at).getTime() - useNow().getTime();
  return <span className="faint">{ms > 0 ? t("in", { d: shortDuration(ms) }) : t("now")}</span>;
}

export function Ago({ at }: { at: string }) {
  const t = useT();
  const ms = useNow().getTime() - new Date(at).getTime();
  return (
    <time dateTime={at} title={dateTime(at)}>
      {ms < 1000 ? t("now") : t("ago", { d: shortDuration(ms) })}
    </time>
  );
}

export function errorText(t: ReturnType<typeof useT>, e: unknown): string {
  if (e instanceof ApiError) {
    if (e.status === 0) return t("error.offline");
    return (
      e.message +
      (e.problem.errors?.length ? " · " + e.problem.errors.map((f) => `${f.location}: ${f.message}`).join("; ") : "")
    );
  }
  return e instanceof Error ? e.message : String(e);
}

/** tooOften says how long to wait after too many log-in attempts. */
export function tooOften(
  { t, language }: { t: ReturnType<typeof useT>; language: string },
  seconds: number | undefined,
  key: "login.often" | "login.too_many" = "login.often",
): string {
  return t(key, { wait: inWords(seconds ?? 60, language) });
}

export function ErrorNote({ error, retry }: { error: unknown; retry?: () => void }) {
  const t = useT();
  return (
    <Alert color="red" variant="light" role="alert" title={t("error.title")} maw={680} my="sm">
      <Text size="sm">{errorText(t, error)}</Text>
      {retry && (
        <Button mt="xs" size="xs" variant="default" onClick={retry}>
          {t("error.retry")}
        </Button>
      )}
    </Alert>
  );
}

export function Copy({ text, label }: { text: string; label?: string }) {
  const t = useT();
  return (
    <CopyButton value={text}>
      {({ copied, copy }) => (
        <Tooltip label={copied ? t("copied") : (label ?? t("copy"))}>
          <ActionIcon variant="subtle" color="gray" size="sm" onClick={copy} aria-label={label ?? t("copy")}>
            <Icon d={copied ? icons.check : icons.copy} size={14} />
          </ActionIcon>
        </Tooltip>
      )}
    </CopyButton>
  );
}

/** Snippet shows code with a copy button. */
export function Snippet({ code }: { code: string }) {
  return (
    <div className="snippet">
      <Code block tabIndex={0}>
        {code}
      </Code>
      <div className="snippet-copy">
        <Copy text={code} />
      </div>
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <Stack gap="xs" className="empty">
      <Text fw={600}>{title}</Text>
      {children}
    </Stack>
  );
}

export function PageHead({ title, children, sub }: { title: ReactNode; sub?: ReactNode; children?: ReactNode }) {
  return (
    <Group justify="space-between" align="flex-start" mb="sm" gap="sm" className="page-head">
      <div className="page-title">
        <Title order={1}>{title}</Title>
        {sub && (
          <Text size="sm" c="dimmed" component="div">
            {sub}
          </Text>
        )}
      </div>
      {children && <Group gap="xs">{children}</Group>}
    </Group>
  );
}

export function Section({ title, children, right }: { title: string; right?: ReactNode; children: ReactNode }) {
  return (
    <section className="section" aria-label={title}>
      <Group justify="space-between" mb={6}>
        <Title order={2}>{title}</Title>
        {right}
      </Group>
      {children}
    </section>
  );
}

/** Facts is a list of names and values. Empty values are left out. */
export function Facts({ of }: { of: [string, ReactNode][] }) {
  return (
    <dl className="facts">
      {of.map(([name, value]) =>
        value === undefined || value === null || value === "" ? null : (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ),
      )}
    </dl>
  );
}
