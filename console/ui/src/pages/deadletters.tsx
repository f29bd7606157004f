import { Button, Group, Modal, Stack, Text } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call, get, post, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useFilters, useTitle } from "../lib/hooks";
import { Confirm, useComplain, useRefresh } from "../parts/actions";
import { Empty, ErrorNote, Facts, Instant, PageHead, Snippet } from "../parts/basics";
import { Chips } from "../parts/filters";
import { Pages } from "../parts/pages";

type Letter = Schemas["DeadLetter"];
const kinds = ["result", "log", "event", "callback", "heartbeat"] as const;
/** Only messages of these kinds come from a stream, which takes them again. */
const replayed = new Set(["result", "log", "event"]);

export default function DeadLetters() {
  const t = useT();
  useTitle(t("nav.deadletters"));
  const refresh = useRefresh();
  const [f, setF] = useFilters(["kind"] as const);
  const [shown, setShown] = useState<number>();
  const [deleting, setDeleting] = useState<Letter>();
  return (
    <>
      <PageHead title={t("nav.deadletters")} sub={t("letter.what")} />
      <div className="filters">
        <Chips
          label={t("channel.kind")}
          values={kinds}
          value={f.kind}
          onChange={(v) => setF({ kind: v.split(",").at(-1) ?? "" })}
          name={(k) => t(`letter.${k}`)}
        />
      </div>
      <Pages<Letter>
        name={["dead-letters", f.kind]}
        read={(cursor) =>
          get("/api/v1/dead-letters", {
            query: { cursor, limit: 100, kind: (f.kind || undefined) as "log" | undefined },
          })
        }
        empty={
          <Empty title={t("letter.none")}>
            <Text size="sm">{t("letter.none.text")}</Text>
          </Empty>
        }
      >
        {(items) => (
          <table className="list">
            <thead>
              <tr>
                <th>{t("audit.when")}</th>
                <th className="mid keep">{t("channel.kind")}</th>
                <th className="mid">{t("letter.subject")}</th>
                <th>{t("letter.error")}</th>
                <th className="wide">{t("letter.bytes")}</th>
                <th>
                  <span className="sr-only">{t("actions")}</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {items.map((l) => (
                <tr key={l.seq}>
                  <td className="num">
                    <button type="button" className="row-button" data-row onClick={() => setShown(l.seq)}>
                      <Instant at={l.at} now={new Date()} />
                    </button>
                  </td>
                  <td className="mid keep">{letterKind(t, l.kind)}</td>
                  <td className="mid mono grow">
                    <div className="clamp" title={l.subject}>
                      {l.subject}
                    </div>
                  </td>
                  <td className="message">
                    <div className="clamp" title={l.error}>
                      {l.error}
                    </div>
                  </td>
                  <td className="wide num">{l.bytes}</td>
                  <td className="row-actions">
                    {replayed.has(l.kind) && <Replay letter={l} />}
                    <Button size="compact-xs" variant="subtle" color="red" onClick={() => setDeleting(l)}>
                      {t("delete")}
                    </Button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Pages>
      {shown !== undefined && <Look seq={shown} onClose={() => setShown(undefined)} />}
      {deleting && (
        <Confirm
          title={t("letter.delete")}
          text={t("letter.delete.text")}
          action={t("delete")}
          onClose={() => setDeleting(undefined)}
          onConfirm={async () => {
            await call("delete", "/api/v1/dead-letters/{seq}", { path: { seq: deleting.seq } });
            await refresh("dead-letters");
          }}
        />
      )}
    </>
  );
}

const letterKind = (t: ReturnType<typeof useT>, kind: string): string =>
  (kinds as readonly string[]).includes(kind) ? t(`letter.${kind as "log"}`) : kind;

function Replay({ letter, onDone }: { letter: Letter; onDone?: () => void }) {
  const t = useT();
  const refresh = useRefresh();
  const m = useMutation({
    mutationFn: () => post("/api/v1/dead-letters/{seq}/replay", { path: { seq: letter.seq } }),
    onError: useComplain(),
    onSuccess: async () => {
      await refresh("dead-letters");
      onDone?.();
    },
  });
  return (
    <Button
      size="compact-xs"
      variant="default"
      loading={m.isPending}
      onClick={() => m.mutate()}
      title={t("letter.replay.text")}
    >
      {t("letter.replay")}
    </Button>
  );
}

/** Look shows a dead letter with its data, which the list leaves out. */
function Look({ seq, onClose }: { seq: number; onClose: () => void }) {
  const t = useT();
  const letter = useQuery({
    queryKey: ["dead-letter", seq],
    queryFn: () => get("/api/v1/dead-letters/{seq}", { path: { seq } }),
    staleTime: Infinity,
  });
  const l = letter.data;
  return (
    <Modal
      opened
      onClose={onClose}
      size="xl"
      title={`${t("nav.deadletters")} ${seq}`}
      closeButtonProps={{ "aria-label": t("close") }}
    >
      {letter.error && <ErrorNote error={letter.error} />}
      {l && (
        <Stack gap="sm">
          <Text size="sm" className="message-block bad">
            {l.error}
          </Text>
          <Facts
            of={[
              [t("audit.when"), <Instant key="at" at={l.at} />],
              [t("channel.kind"), letterKind(t, l.kind)],
              [
                t("letter.subject"),
                <span key="s" className="mono">
                  {l.subject}
                </span>,
              ],
              [t("letter.bytes"), String(l.bytes)],
            ]}
          />
          {l.headers && Object.keys(l.headers).length > 0 && (
            <div>
              <Text size="xs" c="dimmed">
                {t("letter.headers")}
              </Text>
              <Snippet
                code={Object.entries(l.headers as Record<string, unknown>)
                  .map(([k, v]) => `${k}: ${Array.isArray(v) ? v.join(", ") : String(v)}`)
                  .join("\n")}
              />
            </div>
          )}
          <div>
            <Text size="xs" c="dimmed">
              {t(l.data_base64 ? "letter.data64" : "letter.data")}
            </Text>
            <Snippet code={pretty(l.data || l.data_base64 || "")} />
          </div>
          <Group justify="flex-end" gap="xs">
            <Text size="xs" c="dimmed">
              {t(replayed.has(l.kind) ? "letter.replay.text" : "letter.replay.never")}
            </Text>
            {replayed.has(l.kind) && <Replay letter={l} onDone={onClose} />}
          </Group>
        </Stack>
      )}
    </Modal>
  );
}

/** pretty indents JSON, and returns other text unchanged. */
function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
