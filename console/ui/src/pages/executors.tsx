import { Alert, Button, Group, Modal, Progress, Select, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { ApiError, call, get, post, type Group as ExecutorGroup } from "../api/client";
import { useT } from "../i18n";
import { useExplain } from "../i18n/explain";
import { useTitle } from "../lib/hooks";
import { useMay } from "../lib/me";
import { Confirm, useComplain, useRefresh } from "../parts/actions";
import { Ago, Empty, ErrorNote, errorText, Icon, icons, Instant, PageHead, Section, Snippet } from "../parts/basics";
import { useGroups } from "../parts/filters";
import { GroupLimits, GroupUsage } from "../parts/grouplimits";
import { joinCommand, sdkSnippet } from "../parts/snippets";

export default function Executors() {
  const t = useT();
  useTitle(t("nav.executors"));
  const may = useMay();
  const groups = useGroups();
  const [making, setMaking] = useState(false);
  return (
    <>
      <PageHead title={t("nav.executors")}>{may.administer && <Button size="xs" leftSection={<Icon d={icons.plus} size={14} />} onClick={() => setMaking(true)}>{t("group.new")}</Button>}</PageHead>
      {groups.error && <ErrorNote error={groups.error} retry={() => void groups.refetch()} />}
      {groups.data?.items.length === 0 && <Empty title={t("group.none")} />}
      {groups.data?.items.map((g) => <GroupSection key={g.name} group={g} />)}
      {making && <NewGroup onClose={() => setMaking(false)} />}
    </>
  );
}

function GroupSection({ group: g }: { group: ExecutorGroup }) {
  const t = useT();
  const explain = useExplain();
  const may = useMay();
  const refresh = useRefresh();
  const complain = useComplain();
  const list = useQuery({ queryKey: ["instances", g.name], queryFn: () => get("/api/v1/groups/{name}/instances", { path: { name: g.name } }), refetchInterval: 3000 });
  const [dialog, setDialog] = useState<"pause" | "limits" | "token" | "delete">();
  const [draining, setDraining] = useState<string>();
  const [token, setToken] = useState<string>();
  const resume = useMutation({ mutationFn: () => post("/api/v1/groups/{name}/resume", { path: { name: g.name } }), onError: complain, onSettled: () => refresh("groups") });
  const instances = list.data?.items ?? [];
  return (
    <Section title={g.name} right={<Group gap="xs">
      <Link className="link" href={`/jobs?group=${g.name}`}>{t("group.jobs", { n: g.jobs })}</Link>
      {may.operate && (g.paused_at ? <Button size="compact-xs" variant="default" loading={resume.isPending} onClick={() => resume.mutate()}>{t("group.resume")}</Button> : <Button size="compact-xs" variant="default" onClick={() => setDialog("pause")}>{t("group.pause")}</Button>)}
      {may.administer && <Button size="compact-xs" variant="default" onClick={() => setDialog("limits")}>{t("group.limits")}</Button>}
      {may.administer && <Button size="compact-xs" variant="default" onClick={() => setDialog("token")}>{t("group.token")}</Button>}
      {may.administer && <Button size="compact-xs" variant="subtle" color="red" onClick={() => setDialog("delete")}>{t("delete")}</Button>}
    </Group>}>
      {g.description && <Text size="sm" c="dimmed">{g.description}</Text>}
      {g.paused_at && <Alert color="yellow" variant="light" my={4}>{t("group.paused", { by: g.paused_by, why: g.pause_reason })} <Instant at={g.paused_at} />{g.paused_until && <> – <Instant at={g.paused_until} /></>}</Alert>}
      {g.previous_token_until && <Text size="sm" c="dimmed">{t("group.token.previous")} <Instant at={g.previous_token_until} /></Text>}
      <GroupUsage name={g.name} />
      {list.error && <ErrorNote error={list.error} />}
      {list.data && instances.length === 0 && <Empty title={t("group.noinstances")}>
        <Text size="sm">{t("group.join")}</Text><Snippet code={joinCommand(g.name, "…")} /><details><summary>{t("group.sdk")}</summary><Snippet code={sdkSnippet.replace('"default"', `"${g.name}"`)} /></details>
      </Empty>}
      {instances.length > 0 && (
        <div className="table-box"><table className="list">
          <thead><tr><th>{t("run.instance")}</th><th>{t("instance.load")}</th><th className="mid">{t("instance.handlers")}</th><th className="wide">{t("instance.host")}</th><th className="wide">{t("instance.up")}</th><th className="wide">{t("job.version")}</th><th><span className="sr-only">{t("actions")}</span></th></tr></thead>
          <tbody>{instances.map((i) => (
            <tr key={i.id}>
              <td><Link href={`/runs?instance=${i.id}`} data-row className="row-link">{i.id}</Link>{i.draining && <span className="tag">{t("instance.draining")}</span>}{i.not_offered && !i.draining && <><span className="tag">{t("instance.notoffered")}</span><Text size="xs" c="dimmed">{explain(i.not_offered)}</Text></>}</td>
              <td className="num">{i.running} / {i.capacity}<Progress size={4} w={80} mt={2} value={(100 * i.running) / Math.max(1, i.capacity)} aria-label={t("instance.load")} /></td>
              <td className="mid mono message">{[...i.handlers, ...i.script_languages.map((l) => t("instance.script", { l }))].join(", ")}</td>
              <td className="wide">{i.host}</td><td className="wide num"><Ago at={i.started_at} /></td><td className="wide">{i.version}</td>
              <td className="row-actions">{may.operate && !i.draining && <Button size="compact-xs" variant="subtle" color="gray" onClick={() => setDraining(i.id)}>{t("instance.drain")}</Button>}</td>
            </tr>
          ))}</tbody>
        </table></div>
      )}
      {dialog === "pause" && <PauseGroup group={g.name} onClose={() => setDialog(undefined)} />}
      {dialog === "token" && <ReplaceToken group={g.name} onClose={() => setDialog(undefined)} onToken={setToken} />}
      {dialog === "limits" && <GroupLimits group={g} onClose={() => setDialog(undefined)} />}
      {dialog === "delete" && <Confirm title={t("group.delete", { name: g.name })} text={t("group.delete.text")} action={t("delete")} onClose={() => setDialog(undefined)} onConfirm={async () => { await call("delete", "/api/v1/groups/{name}", { path: { name: g.name } }); await refresh("groups"); }} />}
      {draining && <Confirm title={t("instance.drain.title", { id: draining })} text={t("instance.drain.text")} action={t("instance.drain")} onClose={() => setDraining(undefined)} onConfirm={async () => { await post("/api/v1/groups/{name}/instances/{id}/drain", { path: { name: g.name, id: draining } }); await refresh("instances"); }} />}
      {token && <ShowToken group={g.name} token={token} onClose={() => setToken(undefined)} />}
    </Section>
  );
}

const overlaps = ["", "1h", "24h", "72h", "168h"] as const;

function ReplaceToken({ group, onClose, onToken }: { group: string; onClose: () => void; onToken: (token: string) => void }) {
  const t = useT();
  const refresh = useRefresh();
  const [overlap, setOverlap] = useState<string>("");
  const m = useMutation({
    mutationFn: () => post("/api/v1/groups/{name}/token", { path: { name: group }, body: overlap ? { overlap } : {} }),
    onSuccess: async (made) => { onToken(made.token); onClose(); await refresh("groups"); },
  });
  return (
    <Modal opened onClose={onClose} title={t("group.token")} closeButtonProps={{ "aria-label": t("close") }}>
      <form onSubmit={(e) => { e.preventDefault(); m.mutate(); }}>
        <Stack gap="sm">
          <Select label={t("group.token.overlap")} data={overlaps.map((o) => ({ value: o, label: t(o ? `group.token.overlap.${o}` : "group.token.overlap.none") }))} value={overlap} allowDeselect={false} onChange={(o) => setOverlap(o ?? "")} />
          <Text size="sm">{t(overlap ? "group.token.text.overlap" : "group.token.text")}</Text>
          {m.error && <Text c="var(--bad)" size="sm" role="alert">{errorText(t, m.error)}</Text>}
          <Button type="submit" loading={m.isPending}>{t("group.token.go")}</Button>
        </Stack>
      </form>
    </Modal>
  );
}

function ShowToken({ group, token, onClose }: { group: string; token: string; onClose: () => void }) {
  const t = useT();
  return (
    <Modal opened onClose={onClose} size="lg" title={t("group.token.new", { name: group })} closeOnClickOutside={false} closeButtonProps={{ "aria-label": t("close") }}>
      <Text size="sm">{t("group.token.once")}</Text><Snippet code={token} /><Text size="sm" mt="sm">{t("group.join")}</Text><Snippet code={joinCommand(group, token)} />
    </Modal>
  );
}

function NewGroup({ onClose }: { onClose: () => void }) {
  const t = useT();
  const refresh = useRefresh();
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const m = useMutation({ mutationFn: () => post("/api/v1/groups", { body: { name, description } }), onSuccess: () => refresh("groups") });
  const error = m.error instanceof ApiError ? m.error : undefined;
  if (m.data) return <ShowToken group={m.data.name} token={m.data.token} onClose={onClose} />;
  return (
    <Modal opened onClose={onClose} title={t("group.new")} closeButtonProps={{ "aria-label": t("close") }}>
      <form onSubmit={(e) => { e.preventDefault(); m.mutate(); }}>
        <Stack gap="sm">
          <TextInput label={t("field.name")} value={name} onChange={(e) => setName(e.currentTarget.value)} error={error?.at("name")} data-autofocus required />
          <TextInput label={t("field.description")} value={description} onChange={(e) => setDescription(e.currentTarget.value)} error={error?.at("description")} />
          {m.error && !error?.problem.errors?.length && <Text c="var(--bad)" size="sm" role="alert">{errorText(t, m.error)}</Text>}
          <Button type="submit" loading={m.isPending}>{t("save")}</Button>
        </Stack>
      </form>
    </Modal>
  );
}

function PauseGroup({ group, onClose }: { group: string; onClose: () => void }) {
  const t = useT();
  const refresh = useRefresh();
  const [reason, setReason] = useState("");
  const [until, setUntil] = useState("");
  const m = useMutation({
    mutationFn: () => post("/api/v1/groups/{name}/pause", { path: { name: group }, body: { reason, ...(until ? { until: new Date(until).toISOString() } : {}) } }),
    onSuccess: async () => { await refresh("groups"); onClose(); },
  });
  const error = m.error instanceof ApiError ? m.error : undefined;
  return (
    <Modal opened onClose={onClose} title={t("group.pause.title", { name: group })} closeButtonProps={{ "aria-label": t("close") }}>
      <form onSubmit={(e) => { e.preventDefault(); m.mutate(); }}>
        <Stack gap="sm">
          <Text size="sm">{t("group.pause.text")}</Text>
          <TextInput label={t("group.reason")} value={reason} onChange={(e) => setReason(e.currentTarget.value)} error={error?.at("reason")} data-autofocus required />
          <TextInput label={t("group.until")} type="datetime-local" value={until} onChange={(e) => setUntil(e.currentTarget.value)} error={error?.at("until")} />
          {m.error && !error?.problem.errors?.length && <Text c="var(--bad)" size="sm" role="alert">{errorText(t, m.error)}</Text>}
          <Button type="submit" loading={m.isPending}>{t("group.pause")}</Button>
        </Stack>
      </form>
    </Modal>
  );
}
