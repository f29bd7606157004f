import { Link } from "wouter";
import { useT } from "../i18n";
import { useMay } from "../lib/me";

/** VersionLink names two versions of a job. For admins, who may read the audit log, it links to the difference between them. */
export function VersionLink({ job, from, to }: { job: number; from: number; to: number }) {
  const t = useT();
  const may = useMay();
  const text = t("versions.between", { from, to });
  return may.administer ? (
    <Link className="link" href={`/jobs/${job}?versions=${from}-${to}`}>
      {text}
    </Link>
  ) : (
    <>{text}</>
  );
}
