import { Button, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Fragment, useState } from "react";
import { Link } from "wouter";
import { get, type Group } from "../api/client";
import { useT } from "../i18n";
import { useFilters, useListKeys, useTitle } from "../lib/hooks";
import { useMay } from "../lib/me";
import { Empty, ErrorNote, PageHead } from "../parts/basics";
import { Icon, icons } from "../parts/icons";
import { SearchField } from "../parts/filters";
import { GroupDetail } from "../parts/groupdetail";
import { NewGroup } from "../parts/groupdialogs";

/** Executors lists the groups. An open group also shows its instances, so a refresh is one request, and one more for each open group. */
export default function Executors() {
  const t = useT();
  useTitle(t("nav.executors"));
  useListKeys();
  const may = useMay();
  const [f, setF] = useFilters(["q", "open"] as const);
  const groups = useQuery({
    queryKey: ["groups"],
    queryFn: () => get("/api/v1/groups", { query: { limit: 500 } }),
    refetchInterval: 5000,
  });
  const [making, setMaking] = useState(false);
  const all = groups.data?.items ?? [];
  const shown = all.filter((g) => `${g.name} ${g.description}`.toLowerCase().includes(f.q.toLowerCase()));
  const open = f.open ? f.open.split(",") : [];
  const toggle = (name: string) =>
    setF({ open: (open.includes(name) ? open.filter((o) => o !== name) : [...open, name]).join(",") });
  return (
    <>
      <PageHead title={t("nav.executors")}>
        {may.administer && (
          <Button size="xs" leftSection={<Icon d={icons.plus} size={14} />} onClick={() => setMaking(true)}>
            {t("group.new")}
          </Button>
        )}
      </PageHead>
      <div className="filters">
        <SearchField value={f.q} onChange={(q) => setF({ q })} label={t("group.search")} />
      </div>
      {groups.error && <ErrorNote error={groups.error} retry={() => void groups.refetch()} />}
      {groups.data && all.length === 0 && <Empty title={t("group.none")} />}
      {all.length > 0 && shown.length === 0 && <Empty title={t("group.nofit")} />}
      {shown.length > 0 && (
        <div className="table-box">
          <table className="list">
            <thead>
              <tr>
                <th>{t("field.group")}</th>
                <th>{t("run.state")}</th>
                <th className="num">{t("group.instances")}</th>
                <th className="mid num">{t("nav.jobs")}</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((g) => {
                const shows = open.includes(g.name);
                return (
                  <Fragment key={g.name}>
                    <tr>
                      <td className="grow">
                        <button
                          type="button"
                          data-row
                          className="row-button"
                          aria-expanded={shows}
                          onClick={() => toggle(g.name)}
                        >
                          <span className="fold" aria-hidden="true">
                            {shows ? "▾" : "▸"}
                          </span>
                          {g.name}
                        </button>
                        {g.xxl_job && <span className="tag">XXL-JOB</span>}
                        {g.description && (
                          <div className="mid one-line" title={g.description}>
                            {g.description}
                          </div>
                        )}
                      </td>
                      <td className="group-state">
                        <GroupState group={g} />
                      </td>
                      <td className="num">{g.instances}</td>
                      <td className="mid num">
                        <Link className="plain-link" href={`/jobs?group=${g.name}`}>
                          {g.jobs}
                        </Link>
                      </td>
                    </tr>
                    {shows && (
                      <tr className="detail">
                        <td colSpan={4}>
                          <GroupDetail group={g} at={groups.dataUpdatedAt} />
                        </td>
                      </tr>
                    )}
                  </Fragment>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
      {making && <NewGroup onClose={() => setMaking(false)} />}
    </>
  );
}

/** GroupState names what is wrong with a group. A group with jobs needs an instance, a group without jobs does not. */
function GroupState({ group: g }: { group: Group }) {
  const t = useT();
  const [name, color] = g.paused_at
    ? [t("group.state.paused"), "var(--warn)"]
    : g.instances > 0
      ? [t("group.state.ok"), "dimmed"]
      : g.jobs > 0
        ? [t("group.state.none"), "var(--bad)"]
        : [t("group.state.empty"), "dimmed"];
  return (
    <Text size="sm" span c={color} fw={color === "dimmed" ? 400 : 600}>
      {name}
    </Text>
  );
}
