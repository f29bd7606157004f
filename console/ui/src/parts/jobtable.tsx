import { ActionIcon, Group, Menu, Tooltip } from "@mantine/core";
import { Link, useLocation } from "wouter";
import type { Job, Schemas } from "../api/client";
import { useT } from "../i18n";
import { useMay } from "../lib/me";
import { EnableSwitch } from "./actions";
import { Countdown, Instant } from "./basics";
import { Icon, icons } from "./icons";
import { Durations, HealthMark } from "./jobhealthcell";
import { PausedMark, useResumeJob } from "./jobpause";
import { LastStrip } from "./laststrip";
import { scheduleText } from "./schedule";
import { SortHead, type JobOrder } from "./sorthead";

type Row = Schemas["ListedJob"];

/** JobTable is the list of jobs. A user who may operate chooses jobs in it. */
export function JobTable({
  jobs,
  chosen,
  choose,
  chooseAll,
  sort,
  onSort,
  onTag,
  onRun,
  onPause,
  onDelete,
}: {
  jobs: Row[];
  chosen: ReadonlySet<number>;
  choose: (id: number, on: boolean) => void;
  chooseAll: (on: boolean) => void;
  sort: string;
  onSort: (by: string) => void;
  onTag: (tag: string) => void;
  onRun: (job: Job) => void;
  onPause: (job: Job) => void;
  onDelete: (job: Job) => void;
}) {
  const t = useT();
  const may = useMay();
  const picked = jobs.filter((j) => chosen.has(j.id)).length;
  const head = (by: JobOrder, label: string, className?: string) => (
    <SortHead by={by} label={label} sort={sort} onSort={onSort} className={className} />
  );
  return (
    <div className="table-box">
      <table className="list job-table">
        <thead>
          <tr>
            {may.operate && (
              <th className="tick">
                <input
                  type="checkbox"
                  aria-label={t("choose.all")}
                  checked={picked === jobs.length}
                  ref={(el) => {
                    if (el) el.indeterminate = picked > 0 && picked < jobs.length;
                  }}
                  onChange={(e) => chooseAll(e.currentTarget.checked)}
                />
              </th>
            )}
            {head("name", t("field.name"))}
            <th className="widest">{t("field.schedule")}</th>
            {head("failing_since", t("health.head"), "mid")}
            {head("p95_ms", t("health.durations"), "mid")}
            {head("next_fire_time", t("job.next"), "mid")}
            {head("last_failure", t("strip.head"), "wide")}
            <th>{t("job.enabled")}</th>
            <th>
              <span className="sr-only">{t("actions")}</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {jobs.map((j) => (
            <tr key={j.id} aria-selected={may.operate ? chosen.has(j.id) : undefined}>
              {may.operate && (
                <td className="tick">
                  <input
                    type="checkbox"
                    checked={chosen.has(j.id)}
                    onChange={(e) => choose(j.id, e.currentTarget.checked)}
                    aria-label={t("choose.job", { name: j.name })}
                  />
                </td>
              )}
              <td className="grow">
                <div className="clamp job-name">
                  <Link href={`/jobs/${j.id}`} data-row className="row-link" title={j.name}>
                    {j.name}
                  </Link>{" "}
                  <PausedMark job={j} />
                  {j.tags.map((tag) => (
                    <button key={tag} type="button" className="tag" onClick={() => onTag(tag)}>
                      #{tag}
                    </button>
                  ))}
                </div>
                <div className="one-line" title={j.group}>
                  {j.group}
                  <span className="narrow-inline">
                    {" "}
                    · {[scheduleText(t, j.schedule), said(j)].filter(Boolean).join(" · ")}
                  </span>
                </div>
                {(!!j.last_runs?.length || j.health?.state === "failing") && (
                  <div className="phone-only">
                    {j.health?.state === "failing" ? (
                      <HealthMark health={j.health} />
                    ) : (
                      <LastStrip runs={(j.last_runs ?? []).slice(0, 8)} name={j.name} />
                    )}
                  </div>
                )}
              </td>
              <td className="widest schedule" title={said(j)}>
                <div className="clamp one mono">{scheduleText(t, j.schedule)}</div>
                <div className="clamp one faint">
                  {j.note && (
                    <Tooltip label={j.note}>
                      <span className="pill pill-warn" tabIndex={0}>
                        {t("note")}
                      </span>
                    </Tooltip>
                  )}{" "}
                  {said(j)}
                </div>
              </td>
              <td className="mid">
                <HealthMark health={j.health} />
              </td>
              <td className="mid num">
                <Durations health={j.health} />
              </td>
              <td className="mid num">
                {j.enabled && j.next_fire_time ? (
                  <>
                    <Instant at={j.next_fire_time} now={new Date()} />{" "}
                    <span className="wide">
                      <Countdown at={j.next_fire_time} />
                    </span>
                  </>
                ) : (
                  <span className="faint">–</span>
                )}
              </td>
              <td className="wide">
                <LastStrip runs={j.last_runs ?? []} name={j.name} />
              </td>
              <td>
                <EnableSwitch job={j} />
              </td>
              <td className="row-actions">
                {may.operate && <RowActions job={j} onRun={onRun} onPause={onPause} onDelete={onDelete} />}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** said describes a cron expression in words. The other schedules are in words already. */
const said = (j: Row) => (j.schedule.kind === "cron" ? (j.schedule_description ?? "") : "");

/** RowActions are the actions on a job that a user may do from the list. */
function RowActions({
  job: j,
  onRun,
  onPause,
  onDelete,
}: {
  job: Job;
  onRun: (job: Job) => void;
  onPause: (job: Job) => void;
  onDelete: (job: Job) => void;
}) {
  const t = useT();
  const [, navigate] = useLocation();
  const resume = useResumeJob(j);
  return (
    <Group gap={2} wrap="nowrap" justify="flex-end">
      <Tooltip label={t("run.now")}>
        <ActionIcon
          variant="subtle"
          size="sm"
          onClick={() => onRun(j)}
          aria-label={t("run.now.title", { name: j.name })}
        >
          <Icon d={icons.play} />
        </ActionIcon>
      </Tooltip>
      <Menu position="bottom-end" width={160}>
        <Menu.Target>
          <ActionIcon variant="subtle" color="gray" size="sm" aria-label={t("more", { name: j.name })}>
            ⋯
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item onClick={() => navigate(`/jobs/${j.id}/edit`)}>{t("edit")}</Menu.Item>
          <Menu.Item onClick={() => navigate(`/jobs/new?clone=${j.id}`)}>{t("clone")}</Menu.Item>
          <Menu.Item onClick={() => navigate(`/runs?job_id=${j.id}`)}>{t("nav.runs")}</Menu.Item>
          {j.paused_at ? (
            <Menu.Item onClick={() => resume.mutate()}>{t("group.resume")}</Menu.Item>
          ) : (
            <Menu.Item onClick={() => onPause(j)}>{t("job.pause.menu")}</Menu.Item>
          )}
          <Menu.Divider />
          <Menu.Item color="red" onClick={() => onDelete(j)}>
            {t("delete")}
          </Menu.Item>
        </Menu.Dropdown>
      </Menu>
    </Group>
  );
}
