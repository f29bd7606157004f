import { Button, Group, Modal, Progress, Stack, Text } from "@mantine/core";
import { useRef, useState } from "react";
import { post, type Schemas } from "../api/client";
import { useT, type Key } from "../i18n";
import { errorText } from "./basics";

export type RunAction = "kill" | "retry";
type Sum = Pick<Schemas["BulkAnswer"], "matched" | "done" | "skipped" | "failed" | "failures">;

/** The runs in one request. The number is small, so that the progress is visible and a stop takes effect soon. */
const step = 100;

/** RunBulk kills or retries selected runs, or all that match a filter, and shows the progress. It can be stopped. */
export function RunBulk({
  action,
  filter,
  chosen,
  onClose,
}: {
  action: RunAction;
  filter: Record<string, unknown>;
  chosen?: number;
  onClose: () => void;
}) {
  const t = useT();
  const [sum, setSum] = useState<Sum>();
  const [state, setState] = useState<"asking" | "busy" | "over">("asking");
  const [error, setError] = useState<unknown>();
  const stopped = useRef(false);
  const said = Object.fromEntries(Object.entries(filter).filter(([, v]) => v !== undefined && v !== ""));

  async function go() {
    setState("busy");
    let all: Sum = { matched: 0, done: 0, skipped: 0, failed: 0, failures: [] };
    try {
      for (let cursor: string | undefined; ; ) {
        const a: Schemas["BulkAnswer"] = await post("/api/v1/runs/bulk", {
          body: { action, filter: said as Schemas["BulkFilter"], max: step, cursor },
        });
        all = {
          matched: all.matched + a.matched,
          done: all.done + a.done,
          skipped: all.skipped + a.skipped,
          failed: all.failed + a.failed,
          failures: [...all.failures, ...a.failures].slice(0, 20),
        };
        setSum(all);
        cursor = a.next_cursor || undefined;
        if (!cursor || stopped.current) break;
      }
    } catch (e) {
      setError(e);
    }
    setState("over");
  }

  return (
    <Modal
      opened
      onClose={() => {
        stopped.current = true;
        onClose();
      }}
      title={chosen === undefined ? t(`bulk.${action}.all`) : t(`bulk.${action}`, { n: chosen })}
      closeButtonProps={{ "aria-label": t("close") }}
    >
      <Stack gap="sm">
        {chosen === undefined && (
          <Text size="sm">
            {t("bulk.filter")}{" "}
            {Object.entries(said).map(([k, v]) => (
              <span key={k} className="chip">
                {names[k] ? t(names[k]) : k}: {String(v)}
              </span>
            ))}
          </Text>
        )}
        {state === "asking" && (
          <Text size="sm">
            {chosen === undefined && !said.state ? t(`bulk.${action}.states`) : ""}{" "}
            {t(action === "kill" ? "run.kill.text" : "bulk.retry.text")}
          </Text>
        )}
        <div aria-live="polite">
          {state === "busy" && <Progress value={100} animated size="sm" aria-label={t("loading")} />}
          {sum && (
            <Text size="sm" mt={4}>
              {t("bulk.done", { done: sum.done, skipped: sum.skipped, failed: sum.failed })}
            </Text>
          )}
          {sum?.failures.slice(0, 5).map((f, i) => (
            <Text key={i} size="xs" c="var(--bad)">
              {f.detail}
            </Text>
          ))}
          {error !== undefined && (
            <Text size="sm" c="var(--bad)" role="alert">
              {errorText(t, error)}
            </Text>
          )}
        </div>
        <Group justify="flex-end">
          {state === "asking" && (
            <>
              <Button variant="default" onClick={onClose} data-autofocus>
                {t("cancel")}
              </Button>
              <Button color={action === "kill" ? "red" : undefined} onClick={() => void go()}>
                {t(action === "kill" ? "run.kill" : "run.retry")}
              </Button>
            </>
          )}
          {state === "busy" && (
            <Button variant="default" onClick={() => (stopped.current = true)}>
              {t("bulk.stop")}
            </Button>
          )}
          {state === "over" && (
            <Button variant="default" onClick={onClose} autoFocus>
              {t("close")}
            </Button>
          )}
        </Group>
      </Stack>
    </Modal>
  );
}

const names: Record<string, Key> = {
  job_id: "field.job",
  group: "field.group",
  state: "run.state",
  cause: "run.cause",
  reason: "run.reason",
  instance: "run.instance",
};
