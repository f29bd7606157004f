import type { ReactNode } from "react";
import { Link } from "wouter";
import { useT } from "../i18n";
import { useMay, useMe } from "../lib/me";
import { Empty, PageHead } from "./basics";

/** For shows its page to those whose role may do what it is for, and tells others so. The server decides in any case. */
export function For({ operators, children }: { operators?: boolean; children: ReactNode }) {
  const t = useT();
  const { role } = useMe();
  const may = useMay();
  if (operators ? may.operate : may.administer) return children;
  return (
    <>
      <PageHead title={t("refused.title")} />
      <Empty title={t(operators ? "refused.operators" : "refused.admins")}>{t("refused.text", { role: t(`role.${role}`) })} <Link className="link" href="/">{t("nav.overview")}</Link></Empty>
    </>
  );
}
