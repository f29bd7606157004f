import { Button, FileButton, Group, Stack, Text, Textarea } from "@mantine/core";
import { useState } from "react";
import { useLanguage } from "../i18n";
import { parseDates } from "../lib/daysoff";

/** PasteDates adds many dates at once: typed, pasted, or from a file. */
export function PasteDates({ known, onAdd }: { known: Set<string>; onAdd: (dates: string[]) => void }) {
  const { t } = useLanguage();
  const [text, setText] = useState("");
  const [result, setResult] = useState<{ added: number; there: number; faults: { line: number; text: string }[] }>();
  function add(from: string) {
    const { dates, faults } = parseDates(from);
    const fresh = dates.filter((d) => !known.has(d));
    setResult({ added: fresh.length, there: dates.length - fresh.length, faults });
    if (faults.length === 0) setText("");
    onAdd(dates);
  }
  return (
    <Stack gap="xs" className="paste">
      <Textarea
        label={t("calendars.paste")}
        description={t("calendars.paste.help")}
        inputWrapperOrder={["label", "input", "description", "error"]}
        placeholder={"2026-12-25\n2027-10-01..2027-10-07"}
        value={text}
        onChange={(e) => setText(e.currentTarget.value)}
        autosize
        minRows={5}
        maxRows={14}
        classNames={{ input: "mono" }}
        spellCheck={false}
      />
      <Group gap="xs">
        <Button size="xs" variant="default" disabled={text.trim() === ""} onClick={() => add(text)}>
          {t("calendars.add")}
        </Button>
        <FileButton onChange={(f) => void f?.text().then(add)} accept=".ics,.txt,.csv,text/calendar,text/plain">
          {(props) => (
            <Button {...props} size="xs" variant="default">
              {t("calendars.file")}
            </Button>
          )}
        </FileButton>
      </Group>
      {result && (
        <div role="status">
          <Text size="sm">{t("calendars.added", { n: result.added, known: result.there })}</Text>
          {result.faults.slice(0, 8).map((f) => (
            <Text key={f.line} size="sm" c="var(--bad)">
              {t("calendars.fault", { line: f.line, text: f.text })}
            </Text>
          ))}
          {result.faults.length > 8 && (
            <Text size="sm" c="var(--bad)">
              {t("bulk.more", { n: result.faults.length - 8 })}
            </Text>
          )}
        </div>
      )}
    </Stack>
  );
}
