import {
  Collapse,
  NumberInput,
  Radio,
  SegmentedControl,
  Select,
  SimpleGrid,
  Stack,
  Switch,
  Text,
  TextInput,
  UnstyledButton,
} from "@mantine/core";
import { useState, type ReactNode } from "react";
import type { JobInput } from "../api/client";
import { useT, type Key } from "../i18n";
import { Section } from "./basics";

const routes = [
  "any",
  "first",
  "last",
  "round_robin",
  "random",
  "consistent_hash",
  "least_frequently_used",
  "least_recently_used",
  "failover",
  "busyover",
  "broadcast",
] as const;
const fields = [
  "timeout",
  "start_deadline",
  "retries",
  "route_key",
  "shards",
  "retention",
  "author",
  "misfire",
  "block",
  "block_scope",
  "route",
  "retry_backoff.initial",
  "retry_backoff.factor",
  "retry_backoff.max",
  "retry_unknown",
];

/** Policies is the part of the job form that is closed at first. A faulty field opens it. xxlJob says that the group has executors of XXL-JOB. */
export function Policies({
  d,
  xxlJob,
  set,
  at,
}: {
  d: JobInput;
  xxlJob: boolean;
  set: (c: Partial<JobInput>) => void;
  at: (field: string) => string | undefined;
}) {
  const t = useT();
  const [more, setMore] = useState(false);
  const moreFaulty = fields.some((f) => at(f));
  return (
    <Section
      title={t("form.policies")}
      right={
        <UnstyledButton className="link" aria-expanded={more || moreFaulty} onClick={() => setMore(!more)}>
          {t(more || moreFaulty ? "form.less" : "form.more")}
        </UnstyledButton>
      }
    >
      <Collapse in={more || moreFaulty} transitionDuration={0}>
        <Stack gap="md">
          <Policy
            label={t("field.misfire")}
            value={d.misfire ?? "skip"}
            values={["skip", "fire_once", "fire_all"]}
            prefix="misfire"
            onChange={(v) => set({ misfire: v as "skip" })}
          />
          <Policy
            label={t("field.block")}
            value={d.block ?? "serial"}
            values={["serial", "discard_later", "cover_early", "parallel"]}
            prefix="block"
            onChange={(v) => set({ block: v as "serial" })}
          >
            <SegmentedControl
              mt={6}
              size="xs"
              aria-label={t("field.block_scope")}
              value={d.block_scope ?? "cluster"}
              onChange={(v) => set({ block_scope: v as "cluster" })}
              data={[
                { value: "cluster", label: t("scope.cluster") },
                { value: "instance", label: t("scope.instance") },
              ]}
            />
          </Policy>
          <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
            <Select
              label={t("field.route")}
              description={t(`route.${d.route ?? "any"}.help`)}
              inputWrapperOrder={["label", "input", "description", "error"]}
              data={routes.map((r) => ({ value: r, label: t(`route.${r}`) }))}
              value={d.route ?? "any"}
              allowDeselect={false}
              onChange={(r) => set({ route: r as "any" })}
              error={at("route")}
            />
            {d.route === "consistent_hash" && (
              <TextInput
                label={t("field.route_key")}
                description={t("field.route_key.help")}
                inputWrapperOrder={["label", "input", "description", "error"]}
                value={d.route_key ?? ""}
                onChange={(e) => set({ route_key: e.currentTarget.value })}
                error={at("route_key")}
              />
            )}
            {d.route === "broadcast" && (
              <NumberInput
                label={t("field.shards")}
                description={t("field.shards.help")}
                inputWrapperOrder={["label", "input", "description", "error"]}
                min={0}
                value={d.shards ?? 0}
                onChange={(n) => set({ shards: Number(n) || 0 })}
                error={at("shards")}
              />
            )}
          </SimpleGrid>
          <SimpleGrid cols={{ base: 1, sm: 3 }} spacing="sm">
            <TextInput
              label={t("field.timeout")}
              description={t("field.timeout.help")}
              inputWrapperOrder={["label", "input", "description", "error"]}
              value={d.timeout ?? ""}
              onChange={(e) => set({ timeout: e.currentTarget.value })}
              error={at("timeout")}
            />
            <TextInput
              label={t("field.start_deadline")}
              description={t("field.start_deadline.help")}
              inputWrapperOrder={["label", "input", "description", "error"]}
              value={d.start_deadline ?? ""}
              onChange={(e) => set({ start_deadline: e.currentTarget.value })}
              error={at("start_deadline")}
            />
            <NumberInput
              label={t("field.retries")}
              description={t("field.retries.help")}
              inputWrapperOrder={["label", "input", "description", "error"]}
              min={0}
              max={100}
              value={d.retries ?? 0}
              onChange={(n) => set({ retries: Number(n) || 0 })}
              error={at("retries")}
            />
            {(d.retries ?? 0) > 0 && (
              <>
                <TextInput
                  label={t("field.backoff.initial")}
                  value={d.retry_backoff?.initial ?? "1s"}
                  onChange={(e) => set({ retry_backoff: { ...d.retry_backoff, initial: e.currentTarget.value } })}
                  error={at("retry_backoff.initial")}
                />
                <NumberInput
                  label={t("field.backoff.factor")}
                  min={1}
                  step={0.5}
                  value={d.retry_backoff?.factor ?? 2}
                  onChange={(n) => set({ retry_backoff: { ...d.retry_backoff, factor: Number(n) || 1 } })}
                  error={at("retry_backoff.factor")}
                />
                <TextInput
                  label={t("field.backoff.max")}
                  value={d.retry_backoff?.max ?? "5m"}
                  onChange={(e) => set({ retry_backoff: { ...d.retry_backoff, max: e.currentTarget.value } })}
                  error={at("retry_backoff.max")}
                />
              </>
            )}
            <TextInput
              label={t("field.retention")}
              description={t("field.retention.help")}
              inputWrapperOrder={["label", "input", "description", "error"]}
              placeholder={t("field.retention.server")}
              value={d.retention ?? ""}
              onChange={(e) => set({ retention: e.currentTarget.value })}
              error={at("retention")}
            />
            <TextInput
              label={t("field.author")}
              value={d.author ?? ""}
              maxLength={64}
              onChange={(e) => set({ author: e.currentTarget.value })}
              error={at("author")}
            />
          </SimpleGrid>
          {(xxlJob || d.retry_unknown) && (
            <Switch
              label={t("field.retry_unknown")}
              description={t("field.retry_unknown.help")}
              checked={d.retry_unknown ?? false}
              onChange={(e) => set({ retry_unknown: e.currentTarget.checked })}
              error={at("retry_unknown")}
            />
          )}
        </Stack>
      </Collapse>
      {!(more || moreFaulty) && (
        <Text size="sm" c="dimmed">
          {t("form.summary", {
            misfire: t(`misfire.${d.misfire ?? "skip"}`),
            block: t(`block.${d.block ?? "serial"}`),
            route: t(`route.${d.route ?? "any"}`),
            n: d.retries ?? 0,
          })}
        </Text>
      )}
    </Section>
  );
}

/** Policy selects a policy, and explains each choice. */
function Policy({
  label,
  value,
  values,
  prefix,
  onChange,
  children,
}: {
  label: string;
  value: string;
  values: string[];
  prefix: "misfire" | "block";
  onChange: (v: string) => void;
  children?: ReactNode;
}) {
  const t = useT();
  return (
    <div>
      <Radio.Group label={label} value={value} onChange={onChange}>
        <Stack gap={6} mt={4}>
          {values.map((v) => (
            <Radio
              key={v}
              value={v}
              size="xs"
              label={t(`${prefix}.${v}` as Key)}
              description={t(`${prefix}.${v}.help` as Key)}
            />
          ))}
        </Stack>
      </Radio.Group>
      {children}
    </div>
  );
}
