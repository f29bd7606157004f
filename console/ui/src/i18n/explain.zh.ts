// The Chinese texts of explanations, one for each code of the contract. The English text comes with the explanation.
import { serverName } from "../lib/servers";
import type { Explanations, Values } from "./explain";

const count = (v: Values, name: string) => Number(v[name] ?? 0);
const name = (v: Values, key: string) => String(v[key] ?? "");
const items = (v: Values, key: string) => (Array.isArray(v[key]) ? (v[key] as Values[]) : []);

const offers = (v: Values) => (v.language ? `能运行 ${name(v, "language")} 脚本` : "提供该处理器");
const more = (v: Values) => (count(v, "more") > 0 ? `，另有 ${count(v, "more")} 个实例` : "");
const slots = (v: Values) =>
  items(v, "slots")
    .map((s) => `${name(s, "instance")} 已占用 ${count(s, "taken")}/${count(s, "capacity")}`)
    .join("，") + more(v);
const passed = (v: Values, before: string) => {
  const all = items(v, "passed").map((p) =>
    p.answered
      ? `${name(p, "instance")} 正在执行本任务的 ${count(p, "runs")} 次运行`
      : `${name(p, "instance")} 没有响应`,
  );
  return all.length ? before + all.join("，") + more(v) : "";
};

/** routed adds what every choice among instances may say besides. */
const routed = (said: (v: Values) => string) => (v: Values) => {
  const full =
    count(v, "full") > 0
      ? `；${count(v, "full") + (v.instances === undefined ? 1 : count(v, "instances"))} 个实例中有 ${count(v, "full")} 个没有空闲槽位`
      : "";
  return said(v) + full + (v.avoided ? `；避开了之前执行过它的 ${name(v, "avoided")}` : "");
};

const routes: Record<string, string> = {
  any: "任意",
  first: "第一个",
  last: "最后一个",
  round_robin: "轮询",
  random: "随机",
  consistent_hash: "一致性哈希",
  least_frequently_used: "最不经常使用",
  least_recently_used: "最近最久未使用",
  failover: "故障转移",
  busyover: "忙碌转移",
  broadcast: "分片广播",
};
const refusals: Record<string, string> = {
  full: "没有空闲槽位",
  draining: "正在排空",
  no_handler: "没有该处理器",
  lease: "心跳已过期",
  stale: "派发依据的心跳已过期",
  unsupported: "不支持",
  other: "其他原因",
};

const serverReasons: Record<string, string> = {
  read_only: "它是备库，或处于只读状态",
  not_reached: "尚未连接成功，或缺少迁移",
};
const roleNames: Record<string, string> = {
  scheduler: "调度器",
  dispatcher: "分发器",
  console: "控制台",
  gateway: "网关",
};
const missingRoles: Record<string, string> = {
  scheduler: "不会触发任何任务。调度器恢复后，由各任务的错过触发策略处理迟到的触发时间。",
  dispatcher: "结果得不到结算，等待中的运行和重试不会开始，执行器无法重新连接。",
};

/** duration writes milliseconds as 1 小时 2 分 3 秒. */
function duration(ms: number): string {
  const hours = Math.floor(ms / 3_600_000),
    minutes = Math.floor((ms % 3_600_000) / 60_000),
    seconds = (ms % 60_000) / 1000;
  return [hours && `${hours} 小时`, minutes && `${minutes} 分`, (seconds || (!hours && !minutes)) && `${seconds} 秒`]
    .filter(Boolean)
    .join(" ");
}
const pauses = (v: Values) =>
  items(v, "pauses").map((p) => {
    const when = p.to ? `，时间为 ${name(p, "from")} 至 ${name(p, "to")}` : `，自 ${name(p, "from")} 起`;
    const what = p.job ? "任务" : `执行器组 ${name(p, "group")} `;
    return `${what}由 ${name(p, "by")} 暂停${when}${p.reason ? `（${name(p, "reason")}）` : ""}`;
  });
const outcome = (v: Values) => {
  switch (v.misfire) {
    case "fire_once":
      return "按策略补跑最近一次";
    case "fire_all":
      return `按策略补跑最近 ${count(v, "latest")} 次`;
    case "job_changed":
      return "期间任务有变更";
  }
  return "按策略不补跑";
};

export const zhExplain: Explanations = {
  no_instance: () => "该组没有在线实例",
  no_handler: (v) => `没有在线实例${offers(v)}`,
  draining: (v) => `${offers(v)}的实例都正在排空`,
  unfit: (v) => `${offers(v)}的实例都报告自身有故障或正在排空`,
  no_room: (v) => (items(v, "slots").length ? `没有空闲槽位：${slots(v)}` : "没有空闲槽位"),
  pinned_gone: (v) =>
    `只能在实例 ${name(v, "instance")} 上运行，但它不在线，或者${v.language ? `不能运行 ${name(v, "language")} 脚本` : "不提供该处理器"}`,
  nats_unavailable: () => "NATS 不可用",
  behind_others: () => "排在已在等待的运行之后",
  asking_instances: () => "正在询问各实例",
  no_answer: (v) => `没有实例响应探测${passed(v, "：")}`,
  all_busy: (v) => `没有实例空闲${passed(v, "：")}`,
  refused: (v) => `实例 ${name(v, "instance")} 拒绝接收：${refusals[name(v, "reason")] ?? name(v, "reason")}`,
  instance_absent: (v) => `派发时实例 ${name(v, "instance")} 不在线`,
  not_started: (v) => `实例 ${name(v, "instance")} 不会启动它`,
  start_failed: () => "已接收它的实例未能启动",
  earlier_run: () => "本任务的前一次运行尚未结束",
  covered_run: () => "被它覆盖的运行尚未结束",

  instance_draining: () => "正在排空",
  instance_full: (v) => `${count(v, "capacity")} 个槽位已占用 ${count(v, "taken")} 个`,
  instance_out_of_files: (v) => `进程的空闲文件描述符不足：${name(v, "message")}`,
  instance_spool_full: (v) => `磁盘上没有空间保存结果：${name(v, "message")}`,
  instance_spool_unwritable: (v) => `无法把结果写入磁盘：${name(v, "message")}`,
  instance_unfit: (v) => `因自身原因不接收运行：${name(v, "reason")}：${name(v, "message")}`,
  instance_silent: (v) => `最近一次心跳在 ${Math.round(count(v, "age_ms") / 1000)} 秒前，过旧，不能据此派发`,
  instance_refused: (v) => `有空闲槽位却刚刚拒绝了派发：${refusals[name(v, "reason")] ?? name(v, "reason")}`,
  instance_offers_nothing: () => "既没有处理器，也没有脚本语言",

  asked_by_name: routed(() => "按名称指定的实例"),
  only_instance: routed((v) => `${routes[name(v, "route")] ?? name(v, "route")}：唯一有空闲槽位的实例`),
  least_loaded: routed(
    (v) =>
      `任意：${count(v, "instances")} 个实例中负载最低，已占用 ${count(v, "taken")}/${count(v, "capacity")} 个槽位`,
  ),
  first: routed((v) => `按名称排序，${count(v, "instances")} 个实例中的第一个`),
  last: routed((v) => `按名称排序，${count(v, "instances")} 个实例中的最后一个`),
  round_robin: routed(
    (v) => `轮询：第 ${count(v, "turn")} 次分配，选中 ${count(v, "instances")} 个实例中的第 ${count(v, "number")} 个`,
  ),
  random: routed((v) => `随机：从 ${count(v, "instances")} 个实例中选出`),
  consistent_hash: routed((v) => `一致性哈希：键“${name(v, "key")}”，共 ${count(v, "instances")} 个实例`),
  least_frequently_used: routed(
    (v) => `最不经常使用：今天执行过 ${count(v, "runs")} 次，在 ${count(v, "instances")} 个实例中最少`,
  ),
  least_recently_used: routed(
    (v) => `最近最久未使用：上次使用在第 ${count(v, "turn")} 次分配，在 ${count(v, "instances")} 个实例中最早`,
  ),
  not_used_yet: routed((v) => `最近最久未使用：尚未使用过，共 ${count(v, "instances")} 个实例`),
  failover: routed(
    (v) =>
      `故障转移：按名称排序 ${count(v, "instances")} 个中的第 ${count(v, "number")} 个，是第一个响应探测的${passed(v, "；")}`,
  ),
  busyover: routed(
    (v) =>
      `忙碌转移：按名称排序 ${count(v, "instances")} 个中的第 ${count(v, "number")} 个，是第一个空闲的${passed(v, "；")}`,
  ),
  broadcast_shard: (v) => `分片广播：共 ${count(v, "total")} 个分片，编号 ${count(v, "shard")}`,
  not_expanded: () => "分片广播，尚未展开",

  no_scheduler: (v) =>
    [
      `调度器未能在到期后 ${duration(count(v, "tolerance_ms"))}内处理（最多迟了 ${duration(count(v, "late_ms"))}）`,
      ...pauses(v),
      outcome(v),
    ].join("；"),
  group_paused: (v) => [...pauses(v), outcome(v)].join("；"),
  job_paused: (v) => [...pauses(v), outcome(v)].join("；"),
  clock_stepped: (v) =>
    [
      `数据库时钟${count(v, "step_ms") < 0 ? "向后" : "向前"}跳变了 ${duration(Math.abs(count(v, "step_ms")))}（跳变前最后读数 ${name(v, "from")}，跳变后首个读数 ${name(v, "to")}）`,
      ...pauses(v),
      outcome(v),
    ].join("；"),
  postgres_away: (v) => [`从 ${name(v, "from")} 到 ${name(v, "to")} 数据库不可用`, ...pauses(v), outcome(v)].join("；"),
  restored: (v) =>
    `数据库已恢复到 ${name(v, "from")} 的状态，不知道从那时到 ${name(v, "to")} 执行过什么；它们可能已经执行过，不再补跑`,
  unexplained: (v) =>
    `原因不明：触发时间检查既没有找到运行，也没有找到错过记录，而当时任务的版本 ${count(v, "version")} 有效`,

  earlier_unfinished: (v) => `到期时，本任务的运行 ${name(v, "run")} 尚未结束`,
  too_many_held: (v) => `本任务被阻塞的运行已达 ${count(v, "limit")} 次`,
  covered_by: (v) => `被本任务的运行 ${name(v, "run")} 覆盖`,
  killed_by: (v) => `由 ${name(v, "by")} 终止`,
  job_deleted: () => "任务已被删除",
  never_started: () => "终止时尚未启动",
  not_taken: (v) =>
    `${duration(count(v, "deadline_ms"))}内，执行器组 ${name(v, "group")} 中没有提供处理器 ${name(v, "handler")} 的实例接收它`,
  script_not_taken: (v) =>
    `${duration(count(v, "deadline_ms"))}内，执行器组 ${name(v, "group")} 中没有能运行 ${name(v, "language")} 脚本的实例接收它`,
  shard_instance_gone: (v) => `该分片属于实例 ${name(v, "instance")}，但它已不在线`,
  offer_too_large: (v) =>
    `参数和父任务输出过大：派发消息为 ${count(v, "bytes")} 字节，上限为 ${count(v, "limit")} 字节`,
  instance_died: (v) => `实例 ${name(v, "instance")} 已失联`,
  start_barred: () => "所在实例在线，但不会启动它",
  attempt_unknown: () => "所在实例在线，但没有它的记录",
  result_lost: () => "所在实例已执行完毕，但结果已丢失",
  output_lost: () => "输出已丢失：这次尝试此前已结束，所在实例只保留了结局",
  no_report: () => "所在实例未按时报告结束",
  result_refused: () => "结果无法保存，已转入死信",

  job_edited: (v) =>
    `任务已修改：从版本 ${count(v, "from")} 到版本 ${count(v, "to")}，最后由 ${name(v, "by")} 于 ${name(v, "at")} 修改`,
  script_edited: (v) => `脚本已修改：从版本 ${count(v, "from")} 到版本 ${count(v, "to")}`,
  executor_changed: (v) => `执行器版本从 ${name(v, "from")} 变为 ${name(v, "to")}`,
  instance_changed: (v) => `实例从 ${name(v, "from")} 变为 ${name(v, "to")}`,

  server_unavailable: (v) =>
    `${serverName(name(v, "server"))} 不可用${v.server === "postgres" ? "，或不接受写入" : ""}${v.reason ? `：${serverReasons[name(v, "reason")] ?? name(v, "reason")}` : ""}。没有 Postgres 时不会触发新的运行；没有 NATS 时到期的运行会等待。正在执行的处理器会继续执行，稍后报告结果。`,
  jetstream_unavailable: () =>
    "JetStream 不接受消息。在线的 NATS 服务器达不到法定数量，或者磁盘已满。到期的运行会等待，心跳会过期，结果保留在执行器上。",
  nats_servers_silent: (v) =>
    `${count(v, "servers")} 个 NATS 服务器中有 ${count(v, "silent")} 个没有响应。其余服务器承担全部工作。如果还有服务器失效，JetStream 将达不到法定数量，到期的运行会等待。`,
  postgres_blocked: (v) =>
    `Postgres 中的一个事务阻塞了 Belfry 的 ${count(v, "sessions")} 个会话。另一个客户端持有 Belfry 需要的锁，分发器的日志写明了是哪个会话。在它结束之前，Belfry 的部分功能会停顿。`,
  connections_taken: (v) =>
    `Postgres 的连接已占用 ${count(v, "percent")}%。达到 100% 时，Postgres 会拒绝连接，重启的进程将无法工作。`,
  role_missing: (v) => {
    const role = roleNames[name(v, "role")] ?? name(v, "role");
    const silent = `没有${role}在工作，尽管有 ${count(v, "processes")} 个进程连接到了 Postgres`;
    return `${count(v, "processes") > 0 ? silent : `没有${role}在线`}。${missingRoles[name(v, "role")] ?? ""}`;
  },
  processes_missing: (v) =>
    `${count(v, "processes")} 个${roleNames[name(v, "role")] ?? ` ${name(v, "role")} `}进程中有 ${count(v, "missing")} 个不在线。该角色的其他进程承担全部工作。在此期间再有一次故障，该角色就会停止工作。`,

  text: (_, text) => text, // a handler's own words, or a sentence of an older release
};
