import { Anchor, Group, Input, SegmentedControl } from "@mantine/core";
import { useRef, useState } from "react";
import type { Schedule } from "../api/client";
import { useT } from "../i18n";
import { faultyFields, fieldAt, fieldNames, fields } from "../lib/cron";

const examples: [string, string][] = [
  ["*/5 * * * *", "every5"],
  ["0 * * * *", "hourly"],
  ["0 2 * * *", "daily"],
  ["30 8 * * 1-5", "workdays"],
  ["0 0 1 * *", "monthly"],
];

/** CronField edits a cron expression. A layer under the text marks faulty fields, and the help names the field at the caret. */
export function CronField({
  value,
  set,
  error,
}: {
  value: Schedule;
  set: (c: Partial<Schedule>) => void;
  error?: string;
}) {
  const t = useT();
  const [caret, setCaret] = useState(0);
  const layer = useRef<HTMLDivElement>(null);
  const expr = value.expr ?? "";
  const dialect = value.dialect ?? "standard";
  const parts = fields(expr);
  const faulty = faultyFields(error);
  const here = fieldAt(expr, caret);
  const names = fieldNames(parts.length, dialect);
  const follow = (e: React.SyntheticEvent<HTMLInputElement>) => {
    setCaret(e.currentTarget.selectionStart ?? 0);
    if (layer.current) layer.current.scrollLeft = e.currentTarget.scrollLeft;
  };
  return (
    <Input.Wrapper label={t("field.expr")} id="cron-expr" error={error} errorProps={{ role: "status" }}>
      <Group gap="xs" align="center">
        <div className="cron">
          <div className="cron-layer mono" aria-hidden="true" ref={layer}>
            {parts.map((p, i) => {
              const end = i === 0 ? 0 : (parts[i - 1]?.start ?? 0) + (parts[i - 1]?.text.length ?? 0);
              return (
                <span key={i}>
                  {expr.slice(end, p.start)}
                  <span className={faulty.includes(i) ? "cron-bad" : undefined}>{p.text}</span>
                </span>
              );
            })}
          </div>
          <input
            id="cron-expr"
            className="cron-input mono"
            value={expr}
            spellCheck={false}
            autoComplete="off"
            aria-invalid={error ? true : undefined}
            aria-describedby="cron-help"
            onChange={(e) => {
              set({ expr: e.currentTarget.value });
              follow(e);
            }}
            onSelect={follow}
            onScroll={follow}
          />
        </div>
        <SegmentedControl
          size="xs"
          value={dialect}
          onChange={(d) => set({ dialect: d as "standard" | "quartz" })}
          data={[
            { value: "standard", label: t("dialect.standard") },
            { value: "quartz", label: "Quartz" },
          ]}
          aria-label={t("field.dialect")}
        />
      </Group>
      <div id="cron-help" className="cron-help">
        {names.map((n, i) => (
          <span key={n} className={i === here ? "cron-here" : faulty.includes(i) ? "cron-bad-name" : undefined}>
            {t(`cron.${n}`)}
          </span>
        ))}
        {names[here] && (
          <div className="cron-range">
            {t(`cron.${names[here]}.help`)}
            {dialect === "quartz" && (names[here] === "dom" || names[here] === "dow")
              ? " " + t("cron.quartz.help")
              : ""}
          </div>
        )}
      </div>
      {dialect === "standard" && (
        <Group gap="xs" mt={4}>
          {examples.map(([e, k]) => (
            <Anchor key={e} component="button" type="button" size="xs" onClick={() => set({ expr: e })}>
              {t(`cron.${k}` as "cron.daily")}
            </Anchor>
          ))}
        </Group>
      )}
    </Input.Wrapper>
  );
}
