import type { Translate } from "../i18n";
import type { Explanation } from "../i18n/explain";
import { clock } from "./time";

/** changeText says in a few words what changed between two runs, with instants in the viewer's zone. Another code is explained by explain. */
export function changeText(t: Translate, explain: (e: unknown) => string, c: Explanation, now: Date): string {
  const args = c.args as Record<string, string | number>;
  switch (c.code) {
    case "job_edited":
      return t("change.job_edited", { ...args, at: clock(String(args.at), now) });
    case "script_edited":
    case "executor_changed":
    case "instance_changed":
      return t(`change.${c.code}`, args);
    default:
      return explain(c);
  }
}
