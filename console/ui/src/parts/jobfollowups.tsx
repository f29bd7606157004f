import {
  ActionIcon,
  Anchor,
  Button,
  Checkbox,
  Group,
  Input,
  MultiSelect,
  Select,
  SimpleGrid,
  Stack,
  TagsInput,
  Text,
} from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { get, type JobInput } from "../api/client";
import { useT } from "../i18n";
import { useMay } from "../lib/me";
import { Icon, icons } from "./icons";
import { JobPick } from "./jobpick";

type Child = NonNullable<JobInput["children"]>[number];
type Alert = NonNullable<JobInput["alert"]>;

/** Children edits the jobs that run after this one. A row without a job has the id 0. */
export function Children({
  id,
  value,
  onChange,
  error,
}: {
  id?: number;
  value: Child[];
  onChange: (c: Child[]) => void;
  error?: string;
}) {
  const t = useT();
  const set = (at: number, c: Partial<Child>) => onChange(value.map((old, i) => (i === at ? { ...old, ...c } : old)));
  return (
    <Input.Wrapper label={t("field.children")} description={t("field.children.help")} error={error}>
      <Stack gap={6} mt={6}>
        {value.map((c, i) => (
          <Group key={i} gap="xs" align="flex-start" className="child-row">
            <div className="child-job">
              <JobPick
                hideLabel
                label={t("children.job", { n: i + 1 })}
                value={c.job_id || undefined}
                without={id}
                onChange={(job) => set(i, { job_id: job ?? 0 })}
              />
            </div>
            <Select
              w={130}
              aria-label={t("children.on", { n: i + 1 })}
              allowDeselect={false}
              value={c.on ?? "success"}
              onChange={(on) => set(i, { on: on as "success" })}
              data={(["success", "failure", "always"] as const).map((o) => ({ value: o, label: t(`on.${o}`) }))}
            />
            <ActionIcon
              mt={5}
              variant="subtle"
              color="gray"
              aria-label={t("children.remove", { n: i + 1 })}
              onClick={() => onChange(value.filter((_, at) => at !== i))}
            >
              <Icon d={icons.trash} />
            </ActionIcon>
          </Group>
        ))}
        <Button
          size="compact-xs"
          variant="default"
          w="fit-content"
          leftSection={<Icon d={icons.plus} size={12} />}
          onClick={() => onChange([...value, { job_id: 0, on: "success" }])}
        >
          {t("children.add")}
        </Button>
      </Stack>
    </Input.Wrapper>
  );
}

const turns = ["failed", "recovered", "missed", "late"] as const;

/** Alerts edits the channels and the kinds of a job's alerts. Only admins may list channels. Other users type the names. */
export function Alerts({
  value,
  onChange,
  errors,
}: {
  value: Alert;
  onChange: (a: Alert) => void;
  errors: { channels?: string; on?: string };
}) {
  const t = useT();
  const may = useMay();
  const known = useQuery({
    queryKey: ["alert-channels", "names"],
    queryFn: () => get("/api/v1/alert-channels", { query: { limit: 500 } }),
    enabled: may.administer,
  });
  const channels = value.channels ?? [];
  const shared = {
    label: t("field.alert"),
    description: t("field.alert.help"),
    value: channels,
    onChange: (c: string[]) => onChange({ ...value, channels: c }),
    error: errors.channels,
  };
  const none = known.data?.items.length === 0 && channels.length === 0;
  return (
    <Stack gap="xs">
      {none ? (
        <Input.Wrapper label={t("field.alert")} description={t("field.alert.help")}>
          <Text size="sm" mt={4}>
            {t("alerts.nochannel")}{" "}
            <Anchor component={Link} href="/alert-channels" size="sm">
              {t("nav.channels")}
            </Anchor>
          </Text>
        </Input.Wrapper>
      ) : may.administer ? (
        <MultiSelect
          {...shared}
          searchable
          data={[...new Set([...(known.data?.items.map((c) => c.name) ?? []), ...channels])]}
        />
      ) : (
        <TagsInput {...shared} placeholder={t("alerts.type")} />
      )}
      {channels.length > 0 && (
        <Checkbox.Group
          label={t("alerts.on")}
          description={value.on?.length ? undefined : t("alerts.default")}
          value={value.on ?? []}
          onChange={(on) => onChange({ ...value, on: on as Alert["on"] })}
          error={errors.on}
        >
          <SimpleGrid cols={{ base: 1, sm: 2 }} spacing={6} mt={6}>
            {turns.map((o) => (
              <Checkbox key={o} size="xs" value={o} label={t(`alert.${o}`)} description={t(`alert.${o}.help`)} />
            ))}
          </SimpleGrid>
        </Checkbox.Group>
      )}
    </Stack>
  );
}
