import { Text } from "@mantine/core";
import { Link } from "wouter";
import type { Job, RunDetail, Schemas } from "../api/client";
import { useT } from "../i18n";
import { Instant } from "./basics";
import { Changes } from "./changes";

/** SinceGood says on the page of a failed run what its job's last success before it was, what has changed in between, and whether the job has succeeded since. */
export function SinceGood({ run: r, job, now }: { run: RunDetail; job: Job; now: Date }) {
  const t = useT();
  if (!job.health) return null;
  const [good, newest] = [r.last_success, job.health.last_success];
  const again = newest && Date.parse(newest.at) > Date.parse(r.finished_at ?? r.created_at);
  const link = (to: Schemas["LastSuccess"]) => (
    <Link className="link num" href={`/runs/${to.run_id}`}>
      <Instant at={to.at} now={now} />
    </Link>
  );
  return (
    <>
      {again && (
        <Text size="sm" mb="xs">
          {t("health.since")} {link(newest)}
        </Text>
      )}
      {good ? (
        <Text size="sm" mb="xs" component="div">
          {t(again ? "health.before" : "health.success")} {link(good)}
          <Changes job={r.job_id} from={good.version} to={r.job_version} changes={r.changes} />
        </Text>
      ) : (
        !newest && (
          <Text size="sm" mb="xs" c="dimmed">
            {t("health.nosuccess")}
          </Text>
        )
      )}
    </>
  );
}
