import { Button, Popover, Stack, TextInput } from "@mantine/core";
import { useState } from "react";
import { useT } from "../i18n";
import { dateTime, viewerZone } from "../lib/time";
import { presets, range } from "../lib/timerange";

/** An instant as a field of type datetime-local shows it, in the viewer's zone. */
const local = (at: string) => (at ? dateTime(at).slice(0, 16).replace(" ", "T") : "");
const instant = (text: string) => (text ? new Date(text).toISOString() : "");

/** TimeChips select a range of time: one of the presets, or two instants. */
export function TimeChips({
  from,
  to,
  onChange,
}: {
  from: string;
  to: string;
  onChange: (range: { from: string; to: string }) => void;
}) {
  const t = useT();
  const [open, setOpen] = useState(false);
  const [first, setFirst] = useState("");
  const [last, setLast] = useState("");
  return (
    <div className="chips" role="group" aria-label={t("filter.time")}>
      {presets.map((p) => (
        <button key={p} type="button" className="chip" onClick={() => onChange(range(p, new Date()))}>
          {t(`span.${p}`)}
        </button>
      ))}
      <Popover opened={open} onChange={setOpen} trapFocus position="bottom-start" shadow="md" returnFocus>
        <Popover.Target>
          <button
            type="button"
            className="chip"
            aria-expanded={open}
            onClick={() => {
              setFirst(local(from));
              setLast(local(to));
              setOpen(!open);
            }}
          >
            {t("span.custom")}
          </button>
        </Popover.Target>
        <Popover.Dropdown>
          <form
            onSubmit={(e) => {
              e.preventDefault();
              onChange({ from: instant(first), to: instant(last) });
              setOpen(false);
            }}
          >
            <Stack gap="xs">
              <TextInput
                size="xs"
                type="datetime-local"
                label={t("filter.from.in", { zone: viewerZone() })}
                value={first}
                onChange={(e) => setFirst(e.currentTarget.value)}
                data-autofocus
              />
              <TextInput
                size="xs"
                type="datetime-local"
                label={t("filter.to.in", { zone: viewerZone() })}
                value={last}
                onChange={(e) => setLast(e.currentTarget.value)}
              />
              <Button size="xs" type="submit">
                {t("filter.apply")}
              </Button>
            </Stack>
          </form>
        </Popover.Dropdown>
      </Popover>
    </div>
  );
}
