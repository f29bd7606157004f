import { Button, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { get, type Job, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { changedFields } from "../lib/changes";
import { ErrorNote, Instant, Section } from "./basics";
import { ShowChange, useFieldName } from "./changelist";

/** JobAudit shows admins the changes of the job, and who made them. */
export function JobAudit({ job }: { job: Job }) {
  const t = useT();
  const fieldName = useFieldName();
  const [shown, setShown] = useState<Schemas["Change"]>();
  const list = useQuery({
    queryKey: ["audit", "job", job.id, job.version],
    queryFn: () => get("/api/v1/audit", { query: { object: `job/${job.id}`, limit: 20 } }),
    placeholderData: (before) => before,
  });
  return (
    <Section
      title={t("job.audit")}
      right={
        <Link className="link" href={`/audit?object=job/${job.id}`}>
          {t("all")}
        </Link>
      }
    >
      {list.error && <ErrorNote error={list.error} />}
      {list.data?.items.length === 0 && (
        <Text size="sm" c="dimmed">
          {t("job.audit.none")}
        </Text>
      )}
      {!!list.data?.items.length && (
        <div className="table-box">
          <table className="list">
            <thead>
              <tr>
                <th>{t("audit.when")}</th>
                <th className="mid">{t("audit.who")}</th>
                <th>{t("audit.what")}</th>
                <th className="mid">{t("audit.fields")}</th>
                <th>
                  <span className="sr-only">{t("audit.change")}</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {list.data.items.map((c) => (
                <tr key={c.id}>
                  <td className="num">
                    <Instant at={c.at} now={new Date()} />
                  </td>
                  <td className="mid">{c.actor}</td>
                  <td className="mono">
                    {c.action}
                    <div className="phone-only faint">{c.actor}</div>
                  </td>
                  <td className="mid message">{changedFields(c.before, c.after).map(fieldName).join(", ")}</td>
                  <td className="row-actions">
                    {(c.before != null || c.after != null) && (
                      <Button size="compact-xs" variant="subtle" color="gray" onClick={() => setShown(c)}>
                        {t("audit.change")}
                      </Button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {shown && <ShowChange change={shown} onClose={() => setShown(undefined)} />}
    </Section>
  );
}
