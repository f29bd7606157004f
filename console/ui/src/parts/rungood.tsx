import { Text } from "@mantine/core";
import { Link } from "wouter";
import type { Job, RunDetail } from "../api/client";
import { useT } from "../i18n";
import { changesSince } from "../lib/sincegood";
import { Instant } from "./basics";
import { Changes } from "./changes";

/** SinceGood says on the page of a failed run what its job's last success was, and whether the job has changed in between. */
export function SinceGood({ run: r, job, now }: { run: RunDetail; job: Job; now: Date }) {
  const t = useT();
  if (!job.health) return null;
  const good = job.health.last_success;
  if (!good)
    return (
      <Text size="sm" mb="xs" c="dimmed">
        {t("health.nosuccess")}
      </Text>
    );
  const later = Date.parse(good.at) > Date.parse(r.finished_at ?? r.created_at);
  const link = (
    <Link className="link num" href={`/runs/${good.run_id}`}>
      <Instant at={good.at} now={now} />
    </Link>
  );
  if (later)
    return (
      <Text size="sm" mb="xs">
        {t("health.since")} {link}
      </Text>
    );
  return (
    <Text size="sm" mb="xs" component="div">
      {t("health.success")} {link}
      <Changes job={r.job_id} from={good.version} to={r.job_version} changes={changesSince(job.health, r)} />
    </Text>
  );
}
