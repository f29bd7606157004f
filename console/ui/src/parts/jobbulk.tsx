import { Button, Group, Modal, Progress, Stack, Text } from "@mantine/core";
import { useRef, useState } from "react";
import { call, post, type Job } from "../api/client";
import { useT } from "../i18n";
import { inTurn } from "../lib/inturn";
import { useRefresh } from "./actions";
import { errorText } from "./basics";

export type JobAction = "enable" | "disable" | "run" | "delete";

const atOnce = 4; // requests; a browser has six connections to a server, and lists need some of them

function act(action: JobAction, id: number): Promise<unknown> {
  switch (action) {
    case "enable":
      return post("/api/v1/jobs/{id}/enable", { path: { id } });
    case "disable":
      return post("/api/v1/jobs/{id}/disable", { path: { id } });
    case "run":
      return post("/api/v1/jobs/{id}/trigger", { path: { id }, body: {} });
    case "delete":
      return call("delete", "/api/v1/jobs/{id}", { path: { id } });
  }
}

/**
 * JobBulk asks for a confirmation, applies an action to several jobs and shows the results. It keeps the jobs with which it was
 * opened, because deleted jobs disappear from the list.
 */
export function JobBulk({
  jobs: chosen,
  action,
  onClose,
  onDone,
}: {
  jobs: Job[];
  action: JobAction;
  onClose: () => void;
  onDone: () => void;
}) {
  const t = useT();
  const [jobs] = useState(chosen);
  const refresh = useRefresh();
  const [ended, setEnded] = useState(0);
  const [failed, setFailed] = useState<{ name: string; why: string }[]>([]);
  const [phase, setPhase] = useState<"asking" | "working" | "over">("asking");
  const stop = useRef(new AbortController());

  async function go() {
    setPhase("working");
    await inTurn(
      jobs,
      atOnce,
      async (job) => {
        try {
          await act(action, job.id);
        } catch (e) {
          setFailed((before) => [...before, { name: job.name, why: errorText(t, e) }]);
        }
        setEnded((n) => n + 1);
      },
      stop.current.signal,
    );
    await refresh("jobs", "runs");
    setPhase("over");
  }
  function close() {
    stop.current.abort();
    if (phase !== "asking") onDone();
    onClose();
  }

  return (
    <Modal
      opened
      onClose={close}
      closeOnClickOutside={phase !== "working"}
      title={t(`bulk.jobs.${action}`, { n: jobs.length })}
      closeButtonProps={{ "aria-label": t("close") }}
    >
      <Stack gap="sm">
        {phase === "asking" && (
          <>
            <Text size="sm">{t(`bulk.jobs.${action}.text`)}</Text>
            <ul className="names">
              {jobs.slice(0, 12).map((j) => (
                <li key={j.id}>
                  {j.name} <span className="faint">{j.group}</span>
                </li>
              ))}
              {jobs.length > 12 && <li className="faint">{t("bulk.more", { n: jobs.length - 12 })}</li>}
            </ul>
            <Group justify="flex-end">
              <Button variant="default" onClick={close} data-autofocus>
                {t("cancel")}
              </Button>
              <Button color={action === "delete" ? "red" : undefined} onClick={() => void go()}>
                {t(`bulk.jobs.${action}.go`, { n: jobs.length })}
              </Button>
            </Group>
          </>
        )}
        {phase !== "asking" && (
          <>
            <Progress
              value={(100 * ended) / jobs.length}
              color={failed.length ? "red" : undefined}
              aria-label={t("bulk.progress", { done: ended, n: jobs.length })}
            />
            <Text size="sm" role="status">
              {t("bulk.progress", { done: ended, n: jobs.length })}
              {failed.length > 0 && <span className="bad"> · {t("bulk.failed", { n: failed.length })}</span>}
            </Text>
            {failed.length > 0 && (
              <ul className="names">
                {failed.map((f) => (
                  <li key={f.name}>
                    {f.name}: <span className="bad">{f.why}</span>
                  </li>
                ))}
              </ul>
            )}
            <Group justify="flex-end">
              <Button variant="default" onClick={close}>
                {t(phase === "working" ? "bulk.stop" : "close")}
              </Button>
            </Group>
          </>
        )}
      </Stack>
    </Modal>
  );
}
