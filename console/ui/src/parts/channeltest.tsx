import { Button } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { post } from "../api/client";
import { useT } from "../i18n";
import { useComplain } from "./actions";

/** useChannelTest sends an alert to a channel, and shows whether it arrived. */
export function useChannelTest() {
  const t = useT();
  return useMutation({
    mutationFn: (name: string) => post("/api/v1/alert-channels/{name}/test", { path: { name } }),
    onSuccess: (a) =>
      notifications.show({
        color: a.delivered ? "blue" : "red",
        message: t(a.delivered ? "channel.sent" : "channel.failed", { detail: a.detail }),
        autoClose: 10_000,
      }),
    onError: useComplain(),
  });
}

export function ChannelTest({ name }: { name: string }) {
  const t = useT();
  const m = useChannelTest();
  return (
    <Button size="compact-xs" variant="default" loading={m.isPending} onClick={() => m.mutate(name)}>
      {t("channel.test")}
    </Button>
  );
}
