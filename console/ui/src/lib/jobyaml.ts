// A job as YAML, in the format of `belfry job apply` and of imports. This module is loaded with the YAML tab.
import { parseDocument, stringify } from "yaml";
import type { JobInput } from "../api/client";
import { emptyDraft, tidy } from "./draft";

export interface NamedChild {
  job?: string;
  job_id?: number;
  on?: string;
}

/** Fields are the fields of a job in a file. Children may be named by group/name. */
export type Fields = Omit<JobInput, "children"> & { children?: NamedChild[] };

const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);

/** toYaml writes a draft without fields that have their default. Children are named by group/name if the name is known. */
export function toYaml(draft: JobInput, nameOf: (id: number) => string | undefined = () => undefined): string {
  const { version, ...job } = tidy(draft);
  void version;
  const plain: Record<string, unknown> = {
    ...emptyDraft("UTC"),
    group: undefined,
    name: undefined,
    schedule: undefined,
    author: "",
    retention: "",
    shards: 0,
    route_key: "",
  };
  const out: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(job))
    if (value !== undefined && (key === "group" || key === "name" || !same(value, plain[key]))) out[key] = value;
  if (job.children?.length)
    out.children = job.children.map((c) => {
      const name = nameOf(c.job_id);
      return name ? { job: name, on: c.on ?? "success" } : { job_id: c.job_id, on: c.on ?? "success" };
    });
  return stringify(out, { lineWidth: 0 });
}

export class YamlFault extends Error {}

/** readOnly are the fields that the server sets. */
const readOnly = [
  "id",
  "created_at",
  "updated_at",
  "last_fire_time",
  "next_fire_time",
  "note",
  "health",
  "version",
  "paused_at",
  "paused_until",
  "pause_reason",
  "paused_by",
  "schedule_description",
];

/** fromYaml reads one job. It keeps unknown fields, so that the server can report them. */
export function fromYaml(text: string): Fields {
  const document = parseDocument(text);
  const fault = document.errors[0];
  if (fault) throw new YamlFault(fault.message.split("\n")[0] ?? fault.message);
  let job: unknown = document.toJS({ maxAliasCount: 0 }); // the server does not accept aliases either
  if (isMapping(job) && Array.isArray(job.jobs)) job = job.jobs;
  if (Array.isArray(job) && job.length === 1) job = job[0];
  if (Array.isArray(job) || !isMapping(job))
    throw new YamlFault("the text must be one job, as a mapping of its fields");
  const wrong = misshapen(job);
  if (wrong.length) throw new YamlFault(wrong.join("; "));
  for (const field of readOnly) delete job[field];
  return job as unknown as Fields;
}

/** draftFrom adds the defaults that a file leaves out. The children must have ids. */
export function draftFrom(
  fields: Omit<Fields, "children"> & Pick<JobInput, "children">,
  version: number | undefined,
): JobInput {
  const { handler, schedule, ...plain } = emptyDraft("UTC");
  void [handler, schedule];
  return {
    ...plain,
    ...fields,
    retry_backoff: { ...plain.retry_backoff, ...fields.retry_backoff },
    ...(version === undefined ? {} : { version }),
  };
}

const isMapping = (v: unknown): v is Record<string, unknown> =>
  typeof v === "object" && v !== null && !Array.isArray(v);
const isString = (v: unknown): boolean => typeof v === "string";

const texts = [
  "group",
  "name",
  "description",
  "runbook_url",
  "author",
  "misfire",
  "handler",
  "param",
  "route",
  "route_key",
  "block",
  "block_scope",
  "timeout",
  "start_deadline",
  "retention",
];

/** misshapen lists the fields whose type a form cannot show. */
function misshapen(job: Record<string, unknown>): string[] {
  const out: string[] = [];
  const want = (field: string, holds: boolean, what: string) => {
    if (!holds) out.push(`${field}: must be ${what}`);
  };
  for (const f of texts) if (f in job) want(f, isString(job[f]), "a string; put it in quotes");
  for (const f of ["shards", "retries"]) if (f in job) want(f, typeof job[f] === "number", "a number");
  for (const f of ["enabled", "retry_unknown"]) if (f in job) want(f, typeof job[f] === "boolean", "true or false");
  if ("tags" in job) want("tags", Array.isArray(job.tags) && job.tags.every(isString), "a list of strings");
  want("schedule", isMapping(job.schedule) && isString(job.schedule.kind), "a mapping with a kind");
  if (isMapping(job.schedule))
    for (const [f, v] of Object.entries(job.schedule)) want(`schedule.${f}`, isString(v), "a string; put it in quotes");
  if (isMapping(job.script)) {
    for (const f of ["language", "code"]) want(`script.${f}`, isString(job.script[f]), "a string");
  } else if ("script" in job) want("script", false, "a mapping of language and code");
  if ("retry_backoff" in job)
    want("retry_backoff", isMapping(job.retry_backoff), "a mapping of initial, factor and max");
  if ("alert" in job)
    want(
      "alert",
      isMapping(job.alert) &&
        ["channels", "on"].every((f) => {
          const v = (job.alert as Record<string, unknown>)[f];
          return v === undefined || (Array.isArray(v) && v.every(isString));
        }),
      "a mapping of lists, channels and on",
    );
  if ("children" in job)
    want(
      "children",
      Array.isArray(job.children) &&
        job.children.every((c) => isMapping(c) && (isString(c.job) || typeof c.job_id === "number")),
      "a list of {job: group/name, on: success}",
    );
  return out;
}
