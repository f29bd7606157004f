import { Skeleton } from "@mantine/core";
import { useT } from "../i18n";

/** Skeletons hold the place of rows that are being read. */
export function Skeletons({ rows, height = 44 }: { rows: number; height?: number }) {
  const t = useT();
  return (
    <div role="status" aria-label={t("loading")} className="skeletons">
      {Array.from({ length: rows }, (_, i) => (
        <Skeleton key={i} height={height} radius="sm" />
      ))}
    </div>
  );
}
