import { Text } from "@mantine/core";
import { useT, type Key } from "../i18n";
import { en } from "../i18n/en";
import type { Difference } from "../lib/changes";

/** ChangeList shows which fields differ, with the fields' names, the old values and the new ones. */
export function ChangeList({ of }: { of: Difference[] }) {
  const t = useT();
  if (of.length === 0) return <Text size="sm" c="dimmed">{t("changes.none")}</Text>;
  return (
    <dl className="changes">
      {of.map((d) => (
        <div key={d.field} className="changed">
          <dt>{fieldName(t, d.field)}</dt>
          <dd>{d.lines
            ? <pre className="diff">{d.lines.map((l, i) => <div key={i} className={l.kind}><span className="sr-only">{t(`changes.${l.kind}`)}</span>{sign[l.kind]}{l.text}</div>)}</pre>
            : <><del>{d.from || "–"}</del> <span aria-hidden="true">→</span> <ins>{d.to || "–"}</ins></>}</dd>
        </div>
      ))}
    </dl>
  );
}

const sign = { same: "  ", added: "+ ", removed: "- " } as const;

/** fieldName translates the path of a field, such as schedule.expr. A path without a translation is returned unchanged. */
export function fieldName(t: ReturnType<typeof useT>, path: string): string {
  const known = (key: string): key is Key => key in en;
  if (known(`field.${path}`)) return t(`field.${path}` as Key);
  const [first = "", ...rest] = path.split(".");
  if (rest.length === 0) return path;
  return known(`field.${first}`) ? `${t(`field.${first}` as Key)}: ${fieldName(t, rest.join("."))}` : path;
}
