import { Button, Group, Text, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { Link, useSearch } from "wouter";
import { get, type Job, type Schemas } from "../api/client";
import { useT, type Key } from "../i18n";
import { useExplain } from "../i18n/explain";
import { dateTime, viewerZone } from "../lib/time";
import { ErrorNote, Section } from "./basics";

/** Why explains why the job did or did not run, at one instant or in the last 24 hours. With ?why=INSTANT in the address it asks at once. */
export function Why({ job, missed }: { job: Job; missed: Schemas["Missed"][] }) {
  const t = useT();
  const explain = useExplain();
  const wanted = new URLSearchParams(useSearch()).get("why");
  const asked = wanted && !Number.isNaN(Date.parse(wanted)) ? wanted : undefined;
  const answer = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState(() =>
    dateTime(asked ?? missed[0]?.last ?? job.last_fire_time ?? new Date()).replace(" ", "T"),
  );
  const m = useMutation({
    mutationFn: (at: string) =>
      get("/api/v1/jobs/{id}/why", { path: { id: job.id }, query: { at: new Date(at).toISOString() } }),
  });
  const { mutate } = m;
  const ask = (instant: string) => {
    setAt(dateTime(instant).replace(" ", "T"));
    mutate(instant);
  };
  useEffect(() => {
    if (asked) mutate(asked, { onSuccess: () => answer.current?.scrollIntoView({ block: "center" }) });
  }, [asked, mutate]);
  return (
    <>
      <Section title={t("why.title")}>
        <form
          onSubmit={(e) => {
            e.preventDefault();
            if (at) m.mutate(at);
          }}
        >
          <Group align="end" gap="xs">
            <TextInput
              type="datetime-local"
              step={1}
              size="xs"
              label={t("why.at", { zone: viewerZone() })}
              value={at}
              onChange={(e) => setAt(e.currentTarget.value)}
            />
            <Button type="submit" size="xs" variant="default" loading={m.isPending}>
              {t("why.ask")}
            </Button>
          </Group>
        </form>
        <div aria-live="polite" ref={answer}>
          {m.error && <ErrorNote error={m.error} />}
          {m.data && (
            <div className="answer">
              <Text size="sm">{m.data.answer}</Text>
              {m.data.run_id && (
                <Link className="link" href={`/runs/${m.data.run_id}`}>
                  {t("why.run")}
                </Link>
              )}
              {!m.data.is_fire_time && (
                <Group gap="sm" mt={4}>
                  {[m.data.fire_time_before, m.data.fire_time_after].map(
                    (x, i) =>
                      x && (
                        <button key={x} type="button" className="link" onClick={() => ask(x)}>
                          {t(i === 0 ? "why.before" : "why.after", { at: dateTime(x) })}
                        </button>
                      ),
                  )}
                </Group>
              )}
            </div>
          )}
        </div>
        <LastDay job={job.id} />
      </Section>
      <Section title={t("missed.title")}>
        {missed.length === 0 && (
          <Text size="sm" c="dimmed">
            {t("missed.none")}
          </Text>
        )}
        {missed.length > 0 && (
          <div className="table-box">
            <table className="list">
              <thead>
                <tr>
                  <th>{t("missed.when")}</th>
                  <th>{t("missed.count")}</th>
                  <th className="mid">{t("missed.policy")}</th>
                  <th>{t("missed.why")}</th>
                </tr>
              </thead>
              <tbody>
                {missed.map((m) => (
                  <tr key={m.at + m.first}>
                    <td>
                      <button type="button" className="link" onClick={() => ask(m.last)}>
                        <span className="num">{dateTime(m.first)}</span>
                        {m.last !== m.first && (
                          <>
                            {" – "}
                            <span className="num">{dateTime(m.last)}</span>
                          </>
                        )}
                      </button>
                    </td>
                    <td className="num">{m.count}</td>
                    <td className="mid">{t(`misfire.${m.policy}`)}</td>
                    <td className="message">{explain(m.why)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Section>
    </>
  );
}

/** LastDay checks every fire time of the last 24 hours. It starts with a button, because the check takes the server some time. */
function LastDay({ job }: { job: number }) {
  const t = useT();
  const m = useMutation({
    mutationFn: async () => {
      const until = new Date().toISOString();
      const all: { counts: Record<string, number>; items: Schemas["FireFinding"][]; cut: boolean } = {
        counts: {},
        items: [],
        cut: false,
      };
      let cursor: string | undefined;
      for (let pages = 0; ; pages++) {
        const page = await get("/api/v1/audit/fires", {
          query: { job_id: job, since: new Date(Date.parse(until) - 86_400_000).toISOString(), until, cursor },
        });
        for (const [fate, n] of Object.entries(page.counts)) all.counts[fate] = (all.counts[fate] ?? 0) + n;
        all.items.push(...page.items);
        cursor = page.next_cursor || undefined;
        all.cut = pages >= 20 || all.items.length >= 500;
        if (!cursor || all.cut) return all;
      }
    },
  });
  const d = m.data;
  return (
    <div className="last-day">
      <Button size="compact-xs" variant="default" loading={m.isPending} onClick={() => m.mutate()}>
        {t("why.day")}
      </Button>
      <div aria-live="polite">
        {m.error && <ErrorNote error={m.error} />}
        {d && (
          <Text size="sm" mt={4}>
            {Object.keys(d.counts).length === 0
              ? t("why.day.none")
              : t("why.day.counts", {
                  counts: Object.entries(d.counts)
                    .sort((a, b) => b[1] - a[1])
                    .map(([fate, n]) => `${t(`fate.${fate}` as Key)} ${n}`)
                    .join(t("why.day.comma")),
                })}
            {d.cut ? ` ${t("why.day.cut")}` : ""}
          </Text>
        )}
        {d && d.items.length > 0 && (
          <ul className="plain-list">
            {d.items.slice(0, 50).map((i) => (
              <li key={i.first + i.fate}>
                <span className="num">
                  {dateTime(i.first)}
                  {i.last !== i.first && <> – {dateTime(i.last)}</>}
                </span>{" "}
                {i.count > 1 && <span className="faint">×{i.count}</span>}{" "}
                {i.run_id ? (
                  <Link className="plain-link" href={`/runs/${i.run_id}`}>
                    {i.text}
                  </Link>
                ) : (
                  i.text
                )}
              </li>
            ))}
          </ul>
        )}
      </div>
    </div>
  );
}
