import { Alert, Button, FileButton, Group, Modal, Stack, Text, Textarea } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState, type DragEvent } from "react";
import { ApiError, call, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useRefresh } from "./actions";
import { errorText } from "./basics";

type Result = Schemas["ImportResult"];

/** Import shows the changes that a file would make, and then makes them. */
export default function Import({ onClose }: { onClose: () => void }) {
  const t = useT();
  const refresh = useRefresh();
  const [text, setText] = useState("");
  const m = useMutation({
    mutationFn: (dry: boolean) => call("post", "/api/v1/import", { query: { dry_run: dry }, yaml: text }),
    onSuccess: (r) => void (r.dry_run || refresh("jobs", "groups", "event-triggers")),
  });
  const error = m.error instanceof ApiError ? m.error : undefined;
  const take = (f: File | null | undefined) =>
    void f?.text().then((s) => {
      setText(s);
      m.reset();
    });
  const drop = (e: DragEvent) => {
    e.preventDefault();
    take(e.dataTransfer.files[0]);
  };
  const changes = m.data ? m.data.created + m.data.updated : 0;

  return (
    <Modal opened onClose={onClose} size="xl" title={t("import.title")} closeButtonProps={{ "aria-label": t("close") }}>
      {m.data ? (
        <Stack gap="sm">
          <Text size="sm" fw={600} role="status">
            {t(m.data.dry_run ? "import.would" : "import.done", {
              created: m.data.created,
              updated: m.data.updated,
              unchanged: m.data.unchanged,
            })}
            {m.data.failed > 0 && <span className="bad"> · {t("bulk.failed", { n: m.data.failed })}</span>}
          </Text>
          <Differences result={m.data} />
          <Group justify="flex-end">
            {m.data.dry_run && (
              <Button variant="default" onClick={() => m.reset()}>
                {t("import.back")}
              </Button>
            )}
            {m.data.dry_run && changes > 0 && (
              <Button loading={m.isPending} onClick={() => m.mutate(false)}>
                {t("import.go", { n: changes })}
              </Button>
            )}
            {!(m.data.dry_run && changes > 0) && <Button onClick={onClose}>{t("close")}</Button>}
          </Group>
        </Stack>
      ) : (
        <form
          onSubmit={(e) => {
            e.preventDefault();
            m.mutate(true);
          }}
          onDrop={drop}
          onDragOver={(e) => e.preventDefault()}
        >
          <Stack gap="sm">
            <Text size="sm">{t("import.text")}</Text>
            <Group gap="xs">
              <FileButton onChange={take} accept=".yaml,.yml,.json">
                {(props) => (
                  <Button {...props} size="xs" variant="default">
                    {t("import.file")}
                  </Button>
                )}
              </FileButton>
              <Text size="xs" c="dimmed">
                {t("import.drop")}
              </Text>
            </Group>
            <Textarea
              label="YAML"
              value={text}
              onChange={(e) => {
                setText(e.currentTarget.value);
                m.reset();
              }}
              autosize
              minRows={8}
              maxRows={20}
              classNames={{ input: "mono" }}
              spellCheck={false}
              data-autofocus
            />
            {m.error && (
              <Alert color="red" variant="light" role="alert" title={t("import.refused")}>
                {error?.problem.errors?.length
                  ? error.problem.errors.map((f) => (
                      <div key={f.location + f.message}>
                        <span className="mono">{f.location}</span>: {f.message}
                      </div>
                    ))
                  : errorText(t, m.error)}
              </Alert>
            )}
            <Group justify="flex-end">
              <Button variant="default" onClick={onClose}>
                {t("cancel")}
              </Button>
              <Button type="submit" loading={m.isPending} disabled={text.trim() === ""}>
                {t("import.check")}
              </Button>
            </Group>
          </Stack>
        </form>
      )}
    </Modal>
  );
}

function Differences({ result }: { result: Result }) {
  const t = useT();
  const shown = result.items.filter((i) => i.action !== "unchanged");
  return (
    <div className="differences">
      {shown.map((i) => (
        <div key={`${i.kind}/${i.group}/${i.name}`} className="difference">
          <Group gap="xs">
            <span className={`pill pill-${i.action}`}>{t(`import.${i.action}`)}</span>
            <Text size="sm" fw={600}>
              {[i.group, i.name].filter(Boolean).join("/")}
            </Text>
            <Text size="xs" c="dimmed">
              {t(`import.kind.${i.kind}`)}
            </Text>
          </Group>
          {i.error && (
            <Text size="sm" c="var(--bad)">
              {i.error}
            </Text>
          )}
          {i.action === "updated" &&
            i.changes.map((c) => (
              <div key={c.field} className="change mono">
                <span className="faint">{c.field}</span> <del>{c.from || "–"}</del> <span aria-hidden="true">→</span>{" "}
                <ins>{c.to || "–"}</ins>
              </div>
            ))}
        </div>
      ))}
      {shown.length === 0 && (
        <Text size="sm" c="dimmed">
          {t("import.same")}
        </Text>
      )}
    </div>
  );
}
