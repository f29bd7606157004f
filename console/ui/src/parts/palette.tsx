import { Kbd, Modal, Text, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState, type KeyboardEvent } from "react";
import { useLocation } from "wouter";
import { get } from "../api/client";
import { useT, type Key } from "../i18n";

export interface Command {
  label: string;
  hint?: string;
  run: () => void;
}

/**
 * Palette searches pages, actions, groups, jobs, tags and instances. A run's id opens the run. It opens without a transition, and its
 * field has the focus at once: characters typed directly after Ctrl K would otherwise be lost, or act as shortcuts of the page.
 */
export function Palette({ opened, onClose, commands }: { opened: boolean; onClose: () => void; commands: Command[] }) {
  const t = useT();
  return (
    <Modal.Root opened={opened} onClose={onClose} padding={0} yOffset="10vh" transitionProps={{ duration: 0 }}>
      <Modal.Overlay />
      <Modal.Content aria-label={t("palette.open")}>
        <Modal.Body>{opened && <Inner onClose={onClose} commands={commands} />}</Modal.Body>
      </Modal.Content>
    </Modal.Root>
  );
}

function Inner({ onClose, commands }: { onClose: () => void; commands: Command[] }) {
  const t = useT();
  const [, navigate] = useLocation();
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [q] = useDebouncedValue(text.trim(), 150);
  const search = useQuery({
    queryKey: ["palette", q],
    queryFn: ({ signal }) => get("/api/v1/search", { query: { q, limit: 8 }, signal }),
    enabled: q !== "",
    placeholderData: keepPreviousData,
  });
  const words = text.trim().toLowerCase();
  // Until the answer arrives, Enter must not open what was found for a shorter text.
  const fits = (name: string) => !search.isPlaceholderData || name.toLowerCase().includes(words);
  const answer = words ? search.data : undefined;
  const to = (names: string[] | undefined, hint: Key, path: string): Command[] =>
    (names ?? [])
      .filter(fits)
      .map((label) => ({ label, hint: t(hint), run: () => navigate(`${path}${encodeURIComponent(label)}`) }));
  const found: Command[] = [
    ...commands.filter((c) => c.label.toLowerCase().includes(words)),
    ...(answer?.jobs ?? [])
      .filter((j) => fits(j.name))
      .map((j) => ({ label: j.name, hint: j.group, run: () => navigate(`/jobs/${j.id}`) })),
    ...to(answer?.groups, "field.group", "/jobs?group="),
    ...to(answer?.tags, "palette.tag", "/jobs?tag="),
    ...to(
      answer?.instances.map((i) => i.instance),
      "field.instance",
      "/runs?instance=",
    ),
    ...(/^[0-9a-f]{8}-[0-9a-f-]{27}$/.test(words)
      ? [{ label: t("palette.run", { id: words }), run: () => navigate(`/runs/${words}`) }]
      : []),
  ];
  const chosen = Math.min(at, found.length - 1);

  function onKey(e: KeyboardEvent) {
    if (e.key === "ArrowDown") setAt(Math.min(chosen + 1, found.length - 1));
    else if (e.key === "ArrowUp") setAt(Math.max(chosen - 1, 0));
    else if (e.key === "Enter" && !e.nativeEvent.isComposing) pick(found[chosen]);
    else return;
    e.preventDefault();
  }
  function pick(c: Command | undefined) {
    if (!c) return;
    onClose();
    c.run();
  }

  return (
    <div onKeyDown={onKey}>
      <TextInput
        autoFocus
        data-autofocus
        size="md"
        variant="unstyled"
        px="md"
        placeholder={t("palette.placeholder")}
        aria-label={t("palette.placeholder")}
        value={text}
        onChange={(e) => {
          setText(e.currentTarget.value);
          setAt(0);
        }}
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found.length ? `palette-${chosen}` : undefined}
      />
      <div role="listbox" id="palette-list" className="palette-list" aria-label={t("palette.open")}>
        {found.map((c, i) => (
          <div
            key={`${i}${c.label}`}
            id={`palette-${i}`}
            role="option"
            aria-selected={i === chosen}
            className="palette-item"
            tabIndex={-1}
            ref={(el) => {
              if (i === chosen) el?.scrollIntoView({ block: "nearest" });
            }}
            onMouseMove={() => setAt(i)}
            onClick={() => pick(c)}
          >
            <span>{c.label}</span>
            {c.hint &&
              (/^(.|g .)$/.test(c.hint) ? <Kbd size="sm">{c.hint}</Kbd> : <span className="faint">{c.hint}</span>)}
          </div>
        ))}
        {found.length === 0 && (
          <Text size="sm" c="dimmed" p="sm">
            {t("palette.none")}
          </Text>
        )}
      </div>
    </div>
  );
}
