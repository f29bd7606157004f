import { Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { get } from "../api/client";
import { useT } from "../i18n";
import { useTitle } from "../lib/hooks";
import { serverName } from "../lib/servers";
import { shortDuration } from "../lib/time";
import { Ago, ErrorNote, Facts, Instant, PageHead, Section } from "../parts/basics";
import { useGroups } from "../parts/filters";
import { Tile, Tiles, useStale } from "../parts/tiles";

// Above these limits a value is marked. Schedulers record their activity every two seconds. The other work runs every minute.
const silent = 10_000;
const behind = 10 * 60_000;

export default function System() {
  const t = useT();
  useTitle(t("nav.system"));
  const query = useQuery({ queryKey: ["system"], queryFn: () => get("/api/v1/system"), refetchInterval: 5000 });
  const groups = useGroups();
  const stale = useStale(query);
  const s = query.data;
  if (!s)
    return (
      <>
        <PageHead title={t("nav.system")} />
        {query.error && <ErrorNote error={query.error} retry={() => void query.refetch()} />}
      </>
    );
  const now = Date.parse(s.now);
  const age = (at: string | null | undefined) => (at ? Math.max(0, now - Date.parse(at)) : undefined);
  const seen = age(s.scheduler_seen_at);
  const list = groups.data?.items ?? [];
  return (
    <>
      <PageHead title={t("nav.system")} sub={`Belfry ${s.version || "dev"}`}>
        <a className="link" href="/metrics">
          /metrics
        </a>
        <a className="link" href="/docs">
          {t("system.docs")}
        </a>
      </PageHead>
      {query.error && <ErrorNote error={query.error} />}
      <Tiles stale={stale} at={query.dataUpdatedAt}>
        {s.checks.map((c) => (
          <Tile
            key={c.name}
            name={serverName(c.name)}
            value={t(c.ok ? "system.ok" : "system.away")}
            bad={!c.ok}
            note={c.detail}
          />
        ))}
        <Tile
          name={t("system.scheduler")}
          value={seen === undefined ? t("token.never") : t("ago", { d: shortDuration(seen) })}
          bad={seen === undefined || seen > silent}
          note={t("system.scheduler.note")}
        />
        <Tile
          name={t("system.unfired")}
          value={String(s.unfired)}
          bad={s.unfired > 0}
          note={
            s.unfired_due_at
              ? t("system.oldest", { d: shortDuration(age(s.unfired_due_at) ?? 0) })
              : t("system.unfired.note")
          }
        />
        <Tile
          name={t("system.waiting")}
          value={String(s.waiting)}
          warn={s.waiting > 0}
          note={
            s.waiting_due_at
              ? t("system.oldest", { d: shortDuration(age(s.waiting_due_at) ?? 0) })
              : t("system.waiting.note")
          }
          href={s.waiting > 0 ? "/runs?state=queued" : undefined}
        />
        <Tile
          name={t("nav.executors")}
          value={String(list.reduce((n, g) => n + g.instances, 0))}
          note={t("system.groups", { n: list.length })}
          href="/executors"
        />
      </Tiles>
      <Section title={t("system.processes")}>
        <Text size="sm" c="dimmed" mb={4}>
          {t("system.processes.note")}
        </Text>
        <div className="table-box">
          <table className="list">
            <thead>
              <tr>
                <th>{t("user.role")}</th>
                <th>{t("system.process")}</th>
                <th>{t("job.version")}</th>
                <th className="mid">{t("audit.remote")}</th>
                <th className="mid">{t("system.connections")}</th>
                <th className="wide">{t("account.since")}</th>
              </tr>
            </thead>
            <tbody>
              {s.processes.map((p) => (
                <tr key={p.role + p.name + p.address}>
                  <td>{p.role}</td>
                  <td className="grow mono">{p.name}</td>
                  <td>{p.version}</td>
                  <td className="mid">{p.address || t("system.socket")}</td>
                  <td className="mid num">{p.connections}</td>
                  <td className="wide num">
                    <Ago at={p.since} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Section>
      <Section title={t("system.progress")}>
        <Facts
          of={[
            [t("system.audited"), <Behind key="a" ms={age(s.audited_through)} at={s.audited_through} />],
            [t("system.counted"), <Behind key="c" ms={age(s.counted_through)} at={s.counted_through} />],
            ["Postgres", `${s.postgres_version} · ${megabytes(s.database_bytes)}`],
            [t("system.clock"), <Instant key="n" at={s.now} />],
            [
              t("system.build"),
              [s.version, s.commit.slice(0, 12), s.commit_date.slice(0, 10), s.go_version].filter(Boolean).join(" · "),
            ],
            [t("system.contracts"), t("system.contracts.value", { schema: s.schema, wire: s.wire })],
          ]}
        />
      </Section>
    </>
  );
}

const megabytes = (bytes: number): string =>
  bytes < 10 * 2 ** 30 ? `${Math.round(bytes / 2 ** 20)} MiB` : `${(bytes / 2 ** 30).toFixed(1)} GiB`;

function Behind({ ms, at }: { ms?: number; at: string }) {
  const t = useT();
  return (
    <span className={ms !== undefined && ms > behind ? "bad" : undefined}>
      <Instant at={at} /> <span className="faint">{t("ago", { d: shortDuration(ms ?? 0) })}</span>
    </span>
  );
}
