import { Link } from "wouter";
import type { Schemas } from "../api/client";
import { useT, type Key } from "../i18n";
import type { BulkFilter } from "../lib/bulk";
import { dateTime } from "../lib/time";
import { reasonText } from "./basics";

/** BulkJobs lists how many runs of which jobs an action changes, the jobs with most runs first. most is the number of jobs that are shown. */
export function BulkJobs({ jobs, most }: { jobs: Schemas["BulkJob"][]; most: number }) {
  const t = useT();
  return (
    <>
      <table className="list compact">
        <thead className="sr-only">
          <tr>
            <th>{t("nav.runs")}</th>
            <th>{t("field.job")}</th>
          </tr>
        </thead>
        <tbody>
          {jobs.slice(0, most).map((j) => (
            <tr key={j.job_id}>
              <td className="num right">{j.runs}</td>
              <td className="grow">
                <Link className="plain-link" href={`/jobs/${j.job_id}`}>
                  {j.job_name}
                </Link>{" "}
                <span className="faint">{j.group}</span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {jobs.length > most && <div className="faint small">{t("bulk.more", { n: jobs.length - most })}</div>}
    </>
  );
}

/** FilterWords says in words which runs an action selects. jobs are the jobs of these runs. */
export function FilterWords({ filter, jobs }: { filter: BulkFilter; jobs: Schemas["BulkJob"][] }) {
  const t = useT();
  const words: string[] = [];
  const say = (name: Key, value: string) => words.push(t("filter.is", { name: t(name), value }));
  if (filter.ids?.length) words.push(t("bulk.chosen", { n: filter.ids.length }));
  if (filter.bulk_id) words.push(t("bulk.of", { id: filter.bulk_id }));
  if (filter.job_id) say("field.job", jobs.find((j) => j.job_id === filter.job_id)?.job_name ?? `#${filter.job_id}`);
  if (filter.group) say("field.group", filter.group);
  if (filter.state?.length) say("run.state", filter.state.map((s) => t(`state.${s}` as Key)).join(", "));
  if (filter.cause) say("run.cause", t(`cause.${filter.cause}` as Key));
  if (filter.reason) say("run.reason", reasonText(t, filter.reason));
  if (filter.instance) say("run.instance", filter.instance);
  if (filter.from) say("filter.from", dateTime(filter.from));
  if (filter.to) say("filter.to", dateTime(filter.to));
  if (filter.broadcast_id) say("run.shardname", filter.broadcast_id);
  if (filter.parent_run_id) say("run.parent", filter.parent_run_id);
  return <>{words.join(" · ")}</>;
}
