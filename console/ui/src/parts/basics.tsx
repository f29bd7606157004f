import { ActionIcon, Alert, Button, Code, CopyButton, Group, Stack, Text, Title, Tooltip } from "@mantine/core";
import type { ReactNode } from "react";
import { ApiError, type RunState } from "../api/client";
import { useT, type Key } from "../i18n";
import { useNow } from "../lib/hooks";
import { clock, dateTime, inWords, offset, shortDuration } from "../lib/time";

/** Icon draws a path of 16 by 16 pixels. */
export function Icon({ d, size = 16 }: { d: string; size?: number }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.6"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
    >
      <path d={d} />
    </svg>
  );
}

export const icons = {
  play: "M5 3.5v9l7-4.5z",
  copy: "M6 6h7v7H6zM10 6V3H3v7h3",
  check: "M3 8.5l3.5 3.5L13 4.5",
  stop: "M4 4h8v8H4z",
  retry: "M13 8a5 5 0 1 1-1.5-3.6M13 2v3h-3",
  edit: "M3 13l.7-3L10.5 3.2l2.3 2.3L6 12.3zM9 4.7l2.3 2.3",
  clone: "M6 6h7v7H6zM10 6V3H3v7h3M9.5 7.8v3.4M7.8 9.5h3.4",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  trash: "M3 4.5h10M6 4V2.5h4V4M4.5 4.5l.6 9h5.8l.6-9",
  down: "M8 2.5v8M4.5 7L8 10.5 11.5 7M3 13.5h10",
  plus: "M8 3v10M3 8h10",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM10.7 10.7L14 14",
  keyboard: "M1.5 4.5h13v7h-13zM4 7h.01M6.7 7h.01M9.3 7h.01M12 7h.01M5 9.5h6",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M12.6 3.4l-.7.7M4.1 11.9l-.7.7",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  language: "M2 3.5h7M5.5 2v1.5M3 8.5c2.5-1 4-3 4.3-5M3.5 5.5c.8 1.5 2 2.5 4 3M8 14l3-7 3 7M9 12h4",
};

// Each state has its own shape, so that states can be distinguished without colours.
export const shapes: Record<RunState, string> = {
  pending: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11z",
  queued: "M3 4.5h10M3 8h10M3 11.5h6",
  running: "M5 3.5v9l7-4.5z",
  retrying: icons.retry,
  succeeded: icons.check,
  failed: "M4 4l8 8M12 4l-8 8",
  cancelled: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM4.2 4.2l7.6 7.6",
  skipped: "M3 4l4.5 4L3 12M8.5 4L13 8l-4.5 4",
};

export const stateNames = (t: ReturnType<typeof useT>, s: RunState): string => t(`state.${s}`);

export function State({ state, reason, compact }: { state: RunState; reason?: string; compact?: boolean }) {
  const t = useT();
  const why = reason ? reasonText(t, reason) : "";
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
