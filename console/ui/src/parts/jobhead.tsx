import { Button, Group, Menu, Text } from "@mantine/core";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import type { Job } from "../api/client";
import { useT } from "../i18n";
import { useMay } from "../lib/me";
import { DeleteJob, EnableSwitch } from "./actions";
import { Backfill } from "./backfill";
import { Countdown, Instant, PageHead } from "./basics";
import { Icon, icons } from "./icons";
import { CopyAs } from "./copyas";
import { PauseJob } from "./jobpause";
import { RunNow } from "./rundialog";
import { Runbook } from "./runbook";

type Dialog = "run" | "copy" | "backfill" | "pause" | "delete";

/** JobHead is the head of a job's page: its name, and what the user can do with it. */
export function JobHead({ job: j }: { job: Job }) {
  const t = useT();
  const may = useMay();
  const [, navigate] = useLocation();
  const [dialog, setDialog] = useState<Dialog>();
  const close = () => setDialog(undefined);
  return (
    <>
      <PageHead
        title={j.name}
        sub={
          <>
            <Group gap="xs">
              {j.group}
              {j.tags.map((tag) => (
                <Link key={tag} className="tag" href={`/jobs?tag=${encodeURIComponent(tag)}`}>
                  #{tag}
                </Link>
              ))}
              <Runbook url={j.runbook_url} />
              <EnableSwitch job={j} label />
            </Group>
            {j.enabled && j.next_fire_time && (
              <div className="next-fire">
                {t("job.next")} <Instant at={j.next_fire_time} /> <Countdown at={j.next_fire_time} />
              </div>
            )}
          </>
        }
      >
        {may.operate && (
          <>
            <Button size="xs" leftSection={<Icon d={icons.play} size={14} />} onClick={() => setDialog("run")}>
              {t("run.now")}
            </Button>
            <Button
              size="xs"
              variant="default"
              component={Link}
              href={`/jobs/${j.id}/edit`}
              leftSection={<Icon d={icons.edit} size={14} />}
            >
              {t("edit")}
            </Button>
          </>
        )}
        {may.operate ? (
          <Menu position="bottom-end">
            <Menu.Target>
              <Button size="xs" variant="default" aria-label={t("more", { name: j.name })}>
                ⋯
              </Button>
            </Menu.Target>
            <Menu.Dropdown>
              {j.schedule.kind !== "none" && (
                <Menu.Item onClick={() => setDialog("backfill")}>{t("backfill.menu")}</Menu.Item>
              )}
              {!j.paused_at && <Menu.Item onClick={() => setDialog("pause")}>{t("job.pause.menu")}</Menu.Item>}
              <Menu.Item onClick={() => setDialog("copy")}>{t("job.copyas.menu")}</Menu.Item>
              <Menu.Item onClick={() => navigate(`/jobs/new?clone=${j.id}`)}>{t("clone")}</Menu.Item>
              <Menu.Item color="red" onClick={() => setDialog("delete")}>
                {t("delete")}
              </Menu.Item>
            </Menu.Dropdown>
          </Menu>
        ) : (
          <Button size="xs" variant="default" onClick={() => setDialog("copy")}>
            {t("job.copyas.menu")}
          </Button>
        )}
      </PageHead>
      {j.description && (
        <Text size="sm" mb="xs">
          {j.description}
        </Text>
      )}
      {j.note && !j.paused_at && (
        <Text size="sm" c="var(--warn)" mb="xs">
          {j.note}
        </Text>
      )}
      {dialog === "run" && <RunNow job={j} onClose={close} />}
      {dialog === "pause" && <PauseJob job={j} onClose={close} />}
      {dialog === "copy" && <CopyAs job={j} onClose={close} />}
      {dialog === "backfill" && <Backfill job={j} onClose={close} />}
      {dialog === "delete" && <DeleteJob job={j} onClose={close} onDone={() => navigate("/jobs")} />}
    </>
  );
}
