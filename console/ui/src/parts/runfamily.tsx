import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { get, type RunDetail } from "../api/client";
import { useT } from "../i18n";
import { final } from "../lib/states";
import { Section, State } from "./basics";

/** Parent shows the run that caused this one, if the user may see it. */
export function Parent({ id }: { id: string }) {
  const parent = useQuery({
    queryKey: ["run", id],
    queryFn: () => get("/api/v1/runs/{id}", { path: { id } }),
    staleTime: 10_000,
    retry: false,
  });
  return (
    <Link className="plain-link" href={`/runs/${id}`}>
      {parent.data ? (
        <>
          <State state={parent.data.state} reason={parent.data.reason} /> {parent.data.job_name}
        </>
      ) : (
        <span className="mono">{id}</span>
      )}
    </Link>
  );
}

/** Family shows the child runs of a run, and the shards of its broadcast. */
export function Family({ run }: { run: RunDetail }) {
  const t = useT();
  const shards = useQuery({
    queryKey: ["shards", run.id],
    queryFn: () => get("/api/v1/runs/{id}/shards", { path: { id: run.id } }),
    enabled: run.broadcast_id !== null,
    refetchInterval: (q) => (q.state.data?.items.every((s) => final(s.state)) ? false : 2000),
  });
  return (
    <>
      {run.children.length > 0 && (
        <Section title={t("run.children")}>
          <ul className="plain-list">
            {run.children.map((c) => (
              <li key={c.id}>
                <Link className="plain-link" href={`/runs/${c.id}`}>
                  <State state={c.state as RunDetail["state"]} /> {c.job_name}
                </Link>
              </li>
            ))}
          </ul>
        </Section>
      )}
      {shards.data && shards.data.items.length > 0 && (
        <Section title={t("run.shards", { n: shards.data.total })}>
          <ul className="plain-list">
            {shards.data.items.map((s) => (
              <li key={s.id}>
                <Link className="plain-link" aria-current={s.id === run.id ? "true" : undefined} href={`/runs/${s.id}`}>
                  <span className="num">{(s.shard as { index: number } | null)?.index}</span>{" "}
                  <State state={s.state} reason={s.reason} /> <span className="faint">{s.instance}</span>
                </Link>
              </li>
            ))}
          </ul>
        </Section>
      )}
    </>
  );
}
