import { Text } from "@mantine/core";
import { Link } from "wouter";
import { get } from "../api/client";
import { useT } from "../i18n";
import { processed, runCount, type BulkAction } from "../lib/bulk";
import { useListKeys, useNow, useTitle } from "../lib/hooks";
import { Empty, Instant, PageHead } from "../parts/basics";
import { BulkState } from "../parts/bulkstate";
import { FilterWords } from "../parts/bulkparts";
import { Pages } from "../parts/pages";

/** BulkActions lists the bulk actions of the last days, newest first. */
export default function BulkActions() {
  const t = useT();
  const now = useNow();
  useTitle(t("nav.bulk"));
  useListKeys();
  return (
    <>
      <PageHead title={t("nav.bulk")} sub={t("bulk.what")} />
      <Pages<BulkAction>
        name={["bulk"]}
        every={3000}
        read={(cursor) => get("/api/v1/bulk", { query: { cursor, limit: 50 } })}
        empty={
          <Empty title={t("bulk.none")}>
            <Text size="sm">{t("bulk.teach")}</Text>
          </Empty>
        }
      >
        {(items) => (
          <table className="list">
            <thead>
              <tr>
                <th className="grow">{t("audit.what")}</th>
                <th>{t("run.state")}</th>
                <th className="col-number mid keep">{t("bulk.runs")}</th>
                <th className="wide">{t("bulk.which")}</th>
                <th className="mid">{t("audit.who")}</th>
                <th className="mid">{t("audit.when")}</th>
              </tr>
            </thead>
            <tbody>
              {items.map((a) => (
                <tr key={a.id}>
                  <td className="grow">
                    <Link href={`/bulk/${a.id}`} data-row className="row-link">
                      {t(`bulk.title.${a.action}`)}
                    </Link>
                    <div className="narrow-only">
                      <div className="clamp one">
                        <FilterWords filter={a.filter} jobs={a.jobs} />
                      </div>
                    </div>
                    <div className="phone-only">
                      <div className="clamp one faint">
                        <span className="phone-too">
                          {t("bulk.progress", { done: processed(a), n: runCount(a) })}
                          {" · "}
                        </span>
                        {a.created_by} · <Instant at={a.created_at} now={now} />
                      </div>
                    </div>
                  </td>
                  <td>
                    <BulkState state={a.state} />
                  </td>
                  <td className="num mid keep">{t("bulk.progress", { done: processed(a), n: runCount(a) })}</td>
                  <td className="wide message">
                    <div className="clamp">
                      <FilterWords filter={a.filter} jobs={a.jobs} />
                    </div>
                  </td>
                  <td className="mid">{a.created_by}</td>
                  <td className="num mid">
                    <Instant at={a.created_at} now={now} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Pages>
    </>
  );
}
