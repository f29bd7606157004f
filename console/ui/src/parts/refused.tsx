import type { ReactNode } from "react";
import { Link } from "wouter";
import { useT } from "../i18n";
import { useMay, useMe } from "../lib/me";
import { Empty, PageHead } from "./basics";

/** For shows a page to users with the role for it, and a message to others. The server checks the rights of each request. */
export function For({ operators, children }: { operators?: boolean; children: ReactNode }) {
  const t = useT();
  const { role } = useMe();
  const may = useMay();
  if (operators ? may.operate : may.administer) return children;
  return (
    <>
      <PageHead title={t("refused.title")} />
      <Empty title={t(operators ? "refused.operators" : "refused.admins")}>
        {t("refused.text", { role: t(`role.${role}`) })}{" "}
        <Link className="link" href="/">
          {t("nav.overview")}
        </Link>
      </Empty>
    </>
  );
}
