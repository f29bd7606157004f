import { ActionIcon, Button } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { post, type RunDetail } from "../api/client";
import { useT } from "../i18n";
import { useMay } from "../lib/me";
import { final } from "../lib/states";
import { shortDuration } from "../lib/time";
import { Confirm, useComplain, useRefresh } from "./actions";
import { Copy, Instant, PageHead, State } from "./basics";
import { Icon, icons } from "./icons";
import { RunDialog } from "./rundialog";

/** RunHead is the head of a run's page: job, state, cause, and what the user can do now. */
export function RunHead({ run: r }: { run: RunDetail }) {
  const t = useT();
  const may = useMay();
  const refresh = useRefresh();
  const complain = useComplain();
  const [, navigate] = useLocation();
  const [killing, setKilling] = useState(false);
  const [changing, setChanging] = useState(false);
  const retry = useMutation({
    mutationFn: () => post("/api/v1/runs/{id}/retry", { path: { id: r.id } }),
    onSuccess: (a) => a.run_ids[0] && navigate(`/runs/${a.run_ids[0]}`),
    onError: complain,
  });
  return (
    <>
      <PageHead
        title={
          <>
            <Link href={`/jobs/${r.job_id}`} className="plain-link">
              {r.job_name}
            </Link>{" "}
            <State state={r.state} reason={r.reason} />
          </>
        }
        sub={
          <div className="run-sub">
            <span>
              {r.group} · {t(`cause.${r.cause}`)} · <Instant at={r.fire_time ?? r.created_at} />
              {r.duration_ms != null && ` · ${t("run.took", { d: shortDuration(r.duration_ms) })}`}
            </span>
            <span>
              <span className="mono faint">{r.id}</span> <Copy text={r.id} label={t("run.copyid")} />
            </span>
          </div>
        }
      >
        {may.operate && !final(r.state) && (
          <Button
            size="xs"
            color="red"
            variant="light"
            leftSection={<Icon d={icons.stop} size={14} />}
            onClick={() => setKilling(true)}
            disabled={!!r.kill_requested_at}
          >
            {t("run.kill")}
          </Button>
        )}
        {may.operate && final(r.state) && (
          <Button.Group>
            <Button
              size="xs"
              variant="default"
              leftSection={<Icon d={icons.retry} size={14} />}
              loading={retry.isPending}
              onClick={() => retry.mutate()}
            >
              {t("run.retry")}
            </Button>
            <ActionIcon
              size={30}
              variant="default"
              aria-label={t("run.retry.with")}
              title={t("run.retry.with")}
              onClick={() => setChanging(true)}
            >
              <Icon d={icons.edit} size={14} />
            </ActionIcon>
          </Button.Group>
        )}
      </PageHead>
      {killing && (
        <Confirm
          title={t("run.kill.title")}
          text={t("run.kill.text")}
          action={t("run.kill")}
          onClose={() => setKilling(false)}
          onConfirm={async () => {
            await post("/api/v1/runs/{id}/kill", { path: { id: r.id } });
            await refresh("run");
          }}
        />
      )}
      {changing && (
        <RunDialog
          title={t("run.retry.with")}
          action={t("run.retry")}
          group={r.group}
          param={r.param}
          start={(body) => post("/api/v1/runs/{id}/retry", { path: { id: r.id }, body })}
          onClose={() => setChanging(false)}
        />
      )}
    </>
  );
}
