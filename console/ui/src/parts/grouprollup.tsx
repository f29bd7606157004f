import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { get, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { ErrorNote } from "./basics";
import { ListTable } from "./listtable";
import { Skeletons } from "./skeletons";

type Group = Schemas["ListedGroup"];

const worst = (g: Group) => g.health?.failing ?? 0;

/** GroupRollUp counts the jobs of each group by state, the groups with most failing jobs first. A name opens the group's jobs. */
export function GroupRollUp() {
  const t = useT();
  const groups = useQuery({
    queryKey: ["groups", "health"],
    queryFn: () => get("/api/v1/groups", { query: { health: true, limit: 500 } }),
    refetchInterval: 10_000,
  });
  const used = (groups.data?.items ?? []).filter((g) => g.jobs > 0);
  const count = (g: Group, n: number | undefined, state: string, look: string) =>
    n ? (
      <Link href={`/jobs?group=${g.name}&${state}`} className={`plain-link num ${look}`}>
        {n}
        {g.health?.at_least && "+"}
      </Link>
    ) : (
      <span className="faint">–</span>
    );
  return (
    <>
      {groups.error && <ErrorNote error={groups.error} retry={() => void groups.refetch()} />}
      {groups.isPending && <Skeletons rows={8} />}
      <div className="table-box">
        {used.length > 0 && (
          <ListTable
            items={used.sort((a, b) => worst(b) - worst(a) || a.name.localeCompare(b.name))}
            id={(g) => g.name}
            name={(g) => g.name}
            columns={[
              {
                head: t("field.group"),
                className: "grow",
                cell: (g) => (
                  <div className="clamp one">
                    <Link href={`/jobs?group=${g.name}`} data-row className="row-link" title={g.name}>
                      {g.name}
                    </Link>{" "}
                    {g.paused_at && <span className="pill pill-warn">{t("group.state.paused")}</span>}
                    {g.instances === 0 && <span className="bad small">{t("group.state.none")}</span>}
                  </div>
                ),
              },
              { head: t("nav.jobs"), className: "num", cell: (g) => g.jobs },
              {
                head: t("health.failing"),
                cell: (g) => count(g, g.health?.failing, "health=failing&sort=failing_since", "bad bold"),
              },
              { head: t("group.state.paused"), cell: (g) => <Plain n={g.health?.paused} look="warn" /> },
              {
                head: t("job.disabled"),
                className: "mid",
                cell: (g) => count(g, g.health?.disabled, "enabled=false", ""),
              },
              { head: t("group.instances"), className: "mid num", cell: (g) => g.instances },
            ]}
          />
        )}
      </div>
    </>
  );
}

const Plain = ({ n, look }: { n?: number; look: string }) =>
  n ? <span className={`num ${look}`}>{n}</span> : <span className="faint">–</span>;
