import { Modal, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { get } from "../api/client";
import { useT } from "../i18n";
import { between } from "../lib/versions";
import { ErrorNote, Instant } from "./basics";
import { ChangeList } from "./changelist";
import { Skeletons } from "./skeletons";

/** VersionDiff is a dialog with the difference between two versions of a job, and who made it. */
export default function VersionDiff({
  job,
  from,
  to,
  onClose,
}: {
  job: number;
  from: number;
  to: number;
  onClose: () => void;
}) {
  const t = useT();
  const list = useQuery({
    queryKey: ["audit", "job", job, from, to],
    queryFn: () => get("/api/v1/audit", { query: { object: `job/${job}`, limit: 200 } }),
  });
  const found = list.data && between(list.data.items, from, to);
  return (
    <Modal
      opened
      size="lg"
      onClose={onClose}
      title={t("versions.title", { from, to })}
      closeButtonProps={{ "aria-label": t("close") }}
    >
      {list.error && <ErrorNote error={list.error} />}
      {list.isPending && <Skeletons rows={3} />}
      {list.data && !found && <Text size="sm">{t("versions.none")}</Text>}
      {found && (
        <>
          <ul className="plain-list">
            {found.by.map((b) => (
              <li key={b.version}>
                {t("versions.by", { version: b.version, by: b.actor })} · <Instant at={b.at} />
              </li>
            ))}
          </ul>
          <ChangeList of={found.fields} />
        </>
      )}
    </Modal>
  );
}
