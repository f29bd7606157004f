import { Modal, Text } from "@mantine/core";
import type { Schemas } from "../api/client";
import { useLanguage, useT } from "../i18n";
import { differences, type Difference } from "../lib/changes";

/** ChangeList shows which fields differ, with the fields' names, the old values and the new ones. */
export function ChangeList({ of }: { of: Difference[] }) {
  const t = useT();
  const fieldName = useFieldName();
  if (of.length === 0)
    return (
      <Text size="sm" c="dimmed">
        {t("changes.none")}
      </Text>
    );
  return (
    <dl className="changes">
      {of.map((d) => (
        <div key={d.field} className="changed">
          <dt>{fieldName(d.field)}</dt>
          <dd>
            {d.lines ? (
              <pre className="diff">
                {d.lines.map((l, i) => (
                  <div key={i} className={l.kind}>
                    <span className="sr-only">{t(`changes.${l.kind}`)}</span>
                    {sign[l.kind]}
                    {l.text}
                  </div>
                ))}
              </pre>
            ) : (
              <>
                <del>{d.from || "–"}</del> <span aria-hidden="true">→</span> <ins>{d.to || "–"}</ins>
              </>
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** ShowChange is a dialog with an entry of the audit log: what changed, field by field. */
export function ShowChange({ change: c, onClose }: { change: Schemas["Change"]; onClose: () => void }) {
  const t = useT();
  return (
    <Modal
      opened
      size="lg"
      onClose={onClose}
      title={`${c.action} ${objectName(c) || c.object}`}
      closeButtonProps={{ "aria-label": t("close") }}
    >
      <ChangeList of={differences(c.before, c.after)} />
    </Modal>
  );
}

/** objectName is the name of the changed object, if the values before or after have one. */
export function objectName(c: Schemas["Change"]): string {
  const of = (v: unknown) => (typeof v === "object" && v !== null ? (v as { name?: unknown; group?: unknown }) : {});
  const [name, group] = [of(c.after).name ?? of(c.before).name, of(c.after).group ?? of(c.before).group];
  return typeof name === "string" ? (typeof group === "string" ? `${group}/${name}` : name) : "";
}

const sign = { same: "  ", added: "+ ", removed: "- " } as const;

/** useFieldName returns a function that translates the path of a field, such as schedule.expr. It returns a path without a translation unchanged. */
export function useFieldName(): (path: string) => string {
  const { t, has } = useLanguage();
  return function name(path): string {
    const whole = `field.${path}`;
    if (has(whole)) return t(whole);
    const [first = "", ...rest] = path.split(".");
    const key = `field.${first}`;
    return rest.length > 0 && has(key) ? `${t(key)}: ${name(rest.join("."))}` : path;
  };
}
