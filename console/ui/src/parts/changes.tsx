import { useT } from "../i18n";
import { useExplain, type Explanation } from "../i18n/explain";
import { changeText } from "../lib/changetext";
import { useNow } from "../lib/hooks";
import { VersionLink } from "./versionlink";

/** Changes says what changed between the last success and a failure: the versions of the job, and what the server knows about the rest. */
export function Changes({
  job,
  from,
  to,
  changes = [],
}: {
  job: number;
  from: number;
  to: number;
  changes?: Explanation[];
}) {
  const t = useT();
  const explain = useExplain();
  const now = useNow(60_000);
  const known = changes.map((c) => changeText(t, explain, c, now));
  return (
    <p className="changes-line">
      <span className="faint">{t("health.changed")}</span> {to > from && <VersionLink job={job} from={from} to={to} />}
      {known.length > 0 ? (to > from ? " · " : "") + known.join(" · ") : to > from ? "" : t("health.nochange")}
    </p>
  );
}
