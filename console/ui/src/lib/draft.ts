// Drafts, which the job form edits. They have the type of the API. This file adds the defaults that the form needs.
import type { Job, JobInput, Schedule } from "../api/client";
import { goDuration } from "./time";

export function emptyDraft(zone: string): JobInput {
  return {
    group: "",
    name: "",
    description: "",
    runbook_url: "",
    tags: [],
    enabled: true,
    schedule: { kind: "cron", expr: "0 2 * * *", dialect: "standard", time_zone: zone },
    handler: "",
    param: "",
    misfire: "skip",
    route: "any",
    block: "serial",
    block_scope: "cluster",
    timeout: "0s",
    start_deadline: "10m",
    retries: 0,
    retry_backoff: { initial: "1s", factor: 2, max: "5m" },
    retry_unknown: false,
    children: [],
    alert: { channels: [], on: [] },
  };
}

/** draftOf makes a draft of a job. With the version it edits the job, without it is a clone. */
export function draftOf(job: Job, clone: boolean): JobInput {
  const { id, created_at, updated_at, last_fire_time, next_fire_time, note, health, version, ...apart } = job;
  const { paused_at, paused_until, pause_reason, paused_by, schedule_description, ...rest } = apart;
  void [id, created_at, updated_at, last_fire_time, next_fire_time, note, health];
  void [paused_at, paused_until, pause_reason, paused_by, schedule_description];
  return {
    ...rest,
    timeout: goDuration(rest.timeout),
    start_deadline: goDuration(rest.start_deadline),
    ...(rest.script ? { script: { language: rest.script.language, code: rest.script.code } } : {}),
    ...(clone ? { name: `${job.name}-copy` } : { version }),
  };
}

/** tidySchedule drops empty fields, and fields that the kind of schedule does not use. */
export function tidySchedule(s: Schedule): Schedule {
  const keep: Record<Schedule["kind"], (keyof Schedule)[]> = {
    none: [],
    cron: ["expr", "dialect", "time_zone", "start_at", "end_at", "jitter", "calendar"],
    fixed_rate: ["every", "start_at", "end_at", "jitter", "time_zone", "calendar"],
    fixed_delay: ["delay", "start_at", "end_at", "time_zone"],
    once: ["at", "time_zone"],
  };
  const out: Schedule = { kind: s.kind };
  for (const k of keep[s.kind]) if (s[k] !== undefined && s[k] !== "") Object.assign(out, { [k]: s[k] });
  return out;
}

/** tidy makes a draft ready to send. */
export function tidy(d: JobInput): JobInput {
  const out: JobInput = { ...d, schedule: tidySchedule(d.schedule) };
  if (out.script) delete out.handler;
  else delete out.script;
  if (out.route !== "consistent_hash") delete out.route_key;
  if (out.route !== "broadcast") delete out.shards;
  return out;
}

/** shownFields are the fields whose faults the job form shows at their places. */
export const shownFields = [
  "group",
  "name",
  "description",
  "runbook_url",
  "tags",
  "schedule.expr",
  "schedule.every",
  "schedule.delay",
  "schedule.at",
  "schedule.time_zone",
  "schedule.start_at",
  "schedule.end_at",
  "schedule.jitter",
  "schedule.calendar",
  "handler",
  "script.code",
  "script.language",
  "script.remark",
  "author",
  "misfire",
  "block",
  "block_scope",
  "children",
  "alert.channels",
  "alert.on",
  "param",
  "route",
  "route_key",
  "shards",
  "timeout",
  "start_deadline",
  "retries",
  "retry_backoff.initial",
  "retry_backoff.factor",
  "retry_backoff.max",
  "retry_unknown",
  "retention",
];
