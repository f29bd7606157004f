import { Alert, Button, Group, Progress, Text } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { call, get, post, type Group as ExecutorGroup, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useExplain } from "../i18n/explain";
import { anyHandler, isShared, useServers, xxlKind } from "../lib/executors";
import { useMay } from "../lib/me";
import { Confirm, useComplain, useRefresh } from "./actions";
import { Ago, Empty, ErrorNote, Instant, Snippet } from "./basics";
import { PauseGroup, ReplaceToken, ShowToken } from "./groupdialogs";
import { GroupLimits, GroupUsage, useGroupUsage } from "./grouplimits";
import { joinCommand, sdkProgram } from "./snippets";
import { OpenGroup, XXLGroup, xxlKindName } from "./xxlgroup";

/**
 * GroupDetail shows a group's instances and the usage of its limits, and has the actions on the group. at is when the groups were read: each time, the
 * instances are read too, or once a minute the usage instead, so that an open group costs one request more.
 */
export function GroupDetail({ group: g, at }: { group: ExecutorGroup; at: number }) {
  const t = useT();
  const explain = useExplain();
  const may = useMay();
  const refresh = useRefresh();
  const complain = useComplain();
  const list = useQuery({
    queryKey: ["instances", g.name],
    queryFn: () => get("/api/v1/groups/{name}/instances", { path: { name: g.name } }),
  });
  const servers = useServers();
  const usage = useGroupUsage(g.name);
  const reads = useRef({ at, n: 0 });
  const [rereadInstances, rereadUsage] = [list.refetch, usage.refetch];
  useEffect(() => {
    if (reads.current.at === at) return;
    reads.current = { at, n: reads.current.n + 1 };
    void (reads.current.n % 12 === 0 ? rereadUsage() : rereadInstances());
  }, [at, rereadInstances, rereadUsage]);
  const [dialog, setDialog] = useState<"pause" | "limits" | "token" | "delete">();
  const [draining, setDraining] = useState<string>();
  const [token, setToken] = useState<string>();
  const resume = useMutation({
    mutationFn: () => post("/api/v1/groups/{name}/resume", { path: { name: g.name } }),
    onError: complain,
    onSettled: () => refresh("groups"),
  });
  const instances = list.data?.items ?? [];
  return (
    <section className="group-detail" aria-label={g.name}>
      <Group gap="xs" mb={6}>
        <Link className="link" href={`/jobs?group=${g.name}`}>
          {t("group.jobs", { n: g.jobs })}
        </Link>
        {may.operate &&
          (g.paused_at ? (
            <Button size="compact-xs" variant="default" loading={resume.isPending} onClick={() => resume.mutate()}>
              {t("group.resume")}
            </Button>
          ) : (
            <Button size="compact-xs" variant="default" onClick={() => setDialog("pause")}>
              {t("group.pause")}
            </Button>
          ))}
        {may.administer && (
          <Button size="compact-xs" variant="default" onClick={() => setDialog("limits")}>
            {t("group.limits")}
          </Button>
        )}
        {may.administer && (
          <Button size="compact-xs" variant="default" onClick={() => setDialog("token")}>
            {t("group.token")}
          </Button>
        )}
        {may.administer && (
          <Button size="compact-xs" variant="subtle" color="gray" onClick={() => setDialog("delete")}>
            {t("delete")}
          </Button>
        )}
      </Group>
      {g.description && (
        <Text size="sm" c="dimmed" className="phone-only">
          {g.description}
        </Text>
      )}
      {g.paused_at && (
        <Alert color="yellow" variant="light" my={4}>
          {t("group.paused", { by: g.paused_by, why: g.pause_reason })} <Instant at={g.paused_at} />
          {g.paused_until && (
            <>
              {" "}
              – <Instant at={g.paused_until} />
            </>
          )}
        </Alert>
      )}
      {g.previous_token_until && (
        <Text size="sm" c="dimmed">
          {t("group.token.previous")} <Instant at={g.previous_token_until} />
        </Text>
      )}
      <GroupUsage name={g.name} usage={usage} />
      {list.error && <ErrorNote error={list.error} />}
      {list.data && g.xxl_job && <XXLGroup group={g.name} instances={instances} />}
      {list.data && !g.xxl_job && instances.length === 0 && (
        <Empty title={t("group.noinstances")}>
          <Text size="sm">{t("group.join")}</Text>
          <Snippet code={joinCommand(g.name, "…", servers)} />
          <details>
            <summary>{t("group.sdk")}</summary>
            <Snippet code={sdkProgram(g.name, servers)} />
          </details>
          <OpenGroup group={g.name} />
        </Empty>
      )}
      {instances.length > 0 && (
        <div className="table-box">
          <table className="list">
            <thead>
              <tr>
                <th>{t("run.instance")}</th>
                <th>{t("instance.load")}</th>
                <th className="mid">{t("instance.handlers")}</th>
                <th className="wide">{t("instance.host")}</th>
                <th className="wide">{t("instance.up")}</th>
                <th className="wide">{t("job.version")}</th>
                <th>
                  <span className="sr-only">{t("actions")}</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {instances.map((i) => (
                <tr key={i.id}>
                  <td>
                    <Link href={`/runs?instance=${i.id}`} data-row className="row-link">
                      {i.id}
                    </Link>
                    {i.draining && <span className="tag">{t("instance.draining")}</span>}
                    {isShared(i) && <span className="tag">{t("instance.shared")}</span>}
                    {i.not_offered && !i.draining && (
                      <>
                        <span className="tag">{t("instance.notoffered")}</span>
                        <Text size="xs" c="dimmed">
                          {explain(i.not_offered)}
                        </Text>
                      </>
                    )}
                  </td>
                  <td className="num">
                    {i.running} / {i.capacity}
                    <Progress
                      size={4}
                      w={80}
                      mt={2}
                      value={(100 * i.running) / Math.max(1, i.capacity)}
                      aria-label={t("instance.load")}
                    />
                  </td>
                  <td className="mid mono message">
                    <Offers instance={i} />
                  </td>
                  <td className="wide message">{i.host}</td>
                  <td className="wide num">
                    <Ago at={i.started_at} />
                  </td>
                  <td className="wide message">
                    {[xxlKindName(t, xxlKind(i) ?? ""), i.version].filter(Boolean).join(" · ")}
                  </td>
                  <td className="row-actions">
                    {may.operate && !i.draining && (
                      <Button size="compact-xs" variant="subtle" color="gray" onClick={() => setDraining(i.id)}>
                        {t("instance.drain")}
                      </Button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {dialog === "pause" && <PauseGroup group={g.name} onClose={() => setDialog(undefined)} />}
      {dialog === "token" && <ReplaceToken group={g.name} onClose={() => setDialog(undefined)} onToken={setToken} />}
      {dialog === "limits" && <GroupLimits group={g} onClose={() => setDialog(undefined)} />}
      {dialog === "delete" && (
        <Confirm
          title={t("group.delete", { name: g.name })}
          text={t("group.delete.text")}
          action={t("delete")}
          onClose={() => setDialog(undefined)}
          onConfirm={async () => {
            await call("delete", "/api/v1/groups/{name}", { path: { name: g.name } });
            await refresh("groups");
          }}
        />
      )}
      {draining && (
        <Confirm
          title={t("instance.drain.title", { id: draining })}
          text={t("instance.drain.text")}
          action={t("instance.drain")}
          onClose={() => setDraining(undefined)}
          onConfirm={async () => {
            await post("/api/v1/groups/{name}/instances/{id}/drain", { path: { name: g.name, id: draining } });
            await refresh("instances");
          }}
        />
      )}
      {token && <ShowToken group={g.name} token={token} onClose={() => setToken(undefined)} />}
    </section>
  );
}

/** Offers lists the handlers and script languages of an instance, and those that it has refused lately. */
function Offers({ instance: i }: { instance: Schemas["Instance"] }) {
  const t = useT();
  const named = (target: string) =>
    target.startsWith("script:") ? t("instance.script", { l: target.slice("script:".length) }) : target;
  return (
    <>
      {i.handlers.map((h) => (h === anyHandler ? t("instance.anyhandler") : h)).join(", ")}
      {i.script_languages.length > 0 && <div>{t("instance.scripts", { list: i.script_languages.join(", ") })}</div>}
      {!!i.lacks?.length && <div className="warn">{t("instance.lacks", { list: i.lacks.map(named).join(", ") })}</div>}
    </>
  );
}
