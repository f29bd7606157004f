#!/usr/bin/env bash
# Trial with real input: imports the crontabs of Debian packages into a standalone Belfry, triggers each line once through an
# agent as `sh -c`, and then waits while due entries run by themselves.
#
#   docs/trial/crontab.sh [seconds to wait, 150 by default] > report.md
#
# The packages are downloaded and unpacked into a temporary directory, and not installed. So the programs in their crontabs are
# absent, and the commands only report this. Two commands could have an effect on any Debian. To prevent this, the agent runs in a
# mount namespace in which /etc/cron.{hourly,daily,weekly,monthly} contain one harmless script each, and the script refuses to
# start if a program of the packages is installed. Run it as root, because the crontabs are root's, on a disposable Debian
# with Go, curl and jq.
set -euo pipefail

packages=(amavisd-new anacron apticron awstats certbot cron-apt cron-daemon-common debsecan e2fsprogs exim4-base
  inn2 leafnode logcheck mdadm munin munin-node ntpsec php-common popularity-contest rsnapshot sendmail-base
  sendmail-bin sysstat tiger)
left_alone="${1:-150}" # seconds
repository="$(cd "$(dirname "$0")/../.." && pwd)"

say() { echo "$*" >&2; }
fail() { say "crontab.sh: $*"; exit 1; }

# Fails if the machine has a program that the crontabs would start. lvcreate is in the list because e2scrub_all exists on every
# Debian and gives up without LVM.
refuse_a_machine_in_use() {
  local program
  [ "$(id -u)" = 0 ] || fail "needs root, because the crontabs are root's"
  [ ! -d /run/systemd/system ] || fail "needs a machine without systemd, such as a container"
  for program in /etc/init.d/anacron /usr/sbin/anacron /usr/sbin/cron-apt /usr/bin/certbot /usr/sbin/lvcreate \
    /usr/share/mdadm/checkarray /etc/munin/plugins /var/cache/munin /var/lib/munin /usr/libexec/ntpsec/rotate-stats \
    /usr/lib/php/sessionclean /usr/lib/sysstat /usr/sbin/tigercron /usr/share/awstats /usr/lib/news /usr/bin/rnews \
    /usr/sbin/ctlinnd /etc/news/leafnode; do
    [ ! -e "$program" ] || fail "$program is installed, and the trial would start it"
  done
  for program in go curl jq dpkg-deb apt-get unshare setpriv; do
    command -v "$program" > /dev/null || fail "$program is needed"
  done
}

unpack_packages() {
  local deb
  mkdir -p "$work/deb" "$work/etc"
  (cd "$work/deb" && apt-get download -qq "${packages[@]}" >&2) || say "some packages could not be downloaded"
  for deb in "$work"/deb/*.deb; do
    dpkg-deb -x "$deb" "$work/etc/$(basename "$deb" | cut -d_ -f1)"
  done
}

crontabs() {
  find "$work/etc" \( -path '*/etc/cron.d/*' -o -path '*/etc/crontab' \) -type f ! -name '.*' | LC_ALL=C sort
}

# Writes a crontab for the trial itself, so that entries are due within two minutes.
write_own_crontab() {
  local soon=$((10#$(date -u +%M) + 2))
  mkdir -p "$work/etc/trial/etc/cron.d"
  {
    echo 'SHELL=/bin/sh'
    echo 'GREETING="hello from the crontab"'
    echo '* * * * * root echo every minute'
    echo '*/1 * * * Mon-Sun root echo "$GREETING"'
    echo "$((soon % 10))-59/10 * * * * root echo as sysstat writes it"
    echo '* * * * * root cat%first line of input%second line of input'
    echo '* * * * * root date +\%Y'
    echo '* * * * * root echo this one fails; exit 3'
    echo 'CRON_TZ=Asia/Kathmandu'
    echo '*/2 * * * * root echo in a zone of its own'
    echo '@hourly root echo on the hour'
    echo '61 * * * * root echo no such minute'
  } > "$work/etc/trial/etc/cron.d/trial"
}

start_belfry() {
  local i
  (cd "$repository" && go build -o "$work/belfry" .)
  export HOME="$work/home" BELFRY_ADMIN_PASSWORD="trial-$RANDOM$RANDOM$RANDOM"
  mkdir -p "$HOME"
  "$work/belfry" standalone --data-dir "$work/data" --http 127.0.0.1:0 --nats 127.0.0.1:0 \
    > "$work/standalone.out" 2> "$work/standalone.log" &
  pids+=($!)
  for ((i = 0; i < 300; i++)); do
    grep -qs '^nats: ' "$work/standalone.out" && break
    kill -0 "${pids[0]}" || fail "standalone ended: $(tail -n 3 "$work/standalone.log")"
    sleep 0.1
  done
  console="$(sed -n 's/^console: //p' "$work/standalone.out")"
  nats="$(sed -n 's/^nats: //p' "$work/standalone.out")"
  "$work/belfry" login --server "$console" --username admin --password-stdin <<< "$BELFRY_ADMIN_PASSWORD" 2>&1 |
    sed 's/^/  /' >&2
  api="$("$work/belfry" token create trial 2> /dev/null)"
}

rest() { curl -fsS -H "Authorization: Bearer $api" "$console/api/v1$1"; }

# Entries run as their users: each user of the crontabs that exists on this machine gets a group and an agent.
start_agent() {
  local user="$1" token i
  token="$("$work/belfry" group create "trial-$user" 2> /dev/null)"
  mkdir -p "$work/spool-$user"
  chown "$user" "$work/spool-$user"
  BELFRY_TOKEN="$token" unshare --mount sh -c '
    for period in hourly daily weekly monthly; do
      mkdir -p /etc/cron.$period && mount -t tmpfs trial /etc/cron.$period
      printf "#!/bin/sh\necho %s maintenance\n" $period > /etc/cron.$period/trial
      chmod 755 /etc/cron.$period/trial
    done
    exec setpriv --reuid "$1" --regid "$(id -g "$1")" --clear-groups "$2" executor --group "trial-$1" \
      --instance "trial-$1" --nats-url "$3" --spool-dir "$4" --allow-command' \
    sh "$user" "$work/belfry" "$nats" "$work/spool-$user" > "$work/agent-$user.log" 2>&1 &
  pids+=($!)
  for ((i = 0; i < 100; i++)); do
    [ "$(rest "/groups/trial-$user/instances" | jq '.items | length')" = 1 ] && return
    sleep 0.1
  done
  fail "the agent of $user did not join: $(tail -n 3 "$work/agent-$user.log")"
}

stop_all() {
  local i
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
    kill "${pids[i]}" 2> /dev/null || true
    wait "${pids[i]}" 2> /dev/null || true
  done
  rm -rf "$work"
}

# Imports one file at a time, so that the report has a result for each file.
import_crontabs() {
  local file package user
  : > "$work/jobs.jsonl"
  : > "$work/problems.jsonl"
  while read -r file; do
    package="${file#"$work/etc/"}"
    package="${package%%/*}"
    for user in "${users[@]}"; do
      "$work/belfry" import crontab "$file" --kind system --user "$user" --group "trial-$user" -o json \
        > "$work/import.json" || say "import of $file for $user exits with $?"
      jq -c --arg root "$work/etc/$package" --arg package "$package" --arg user "$user" \
        '.jobs[]? | {package: $package, user: $user, id, name, source: (.source | ltrimstr($root))}' \
        "$work/import.json" >> "$work/jobs.jsonl"
      jq -c --arg root "$work/etc/$package" --arg package "$package" --arg user "$user" \
        '.problems[]? | {package: $package, user: $user, source: "\(.file | ltrimstr($root)):\(.line)", reason, text, kept}' \
        "$work/import.json" >> "$work/problems.jsonl"
    done
  done < <(crontabs)
}

# Triggers the jobs of packages. The jobs of the trial's crontab only run by schedule.
trigger_each_once() {
  local id
  : > "$work/triggered.jsonl"
  while read -r id; do
    # The exit code is 1 if the run fails. The table shows the exit code of the run's command.
    "$work/belfry" job trigger "$id" --wait --timeout 60s > /dev/null 2>&1 || true
    rest "/runs?job_id=$id&cause=manual&limit=1" | jq -c '.items[]' >> "$work/triggered.jsonl"
  done < <(jq 'select(.package != "trial") | .id' "$work/jobs.jsonl")
}

leave_alone() {
  say "waiting for $left_alone s"
  sleep "$left_alone"
  : > "$work/scheduled.jsonl"
  local cursor=""
  while :; do
    rest "/runs?cause=schedule&limit=500&cursor=$cursor" > "$work/page.json"
    jq -c '.items[] | select(.state != "pending")' "$work/page.json" >> "$work/scheduled.jsonl"
    cursor="$(jq -r '.next_cursor // ""' "$work/page.json")"
    [ -n "$cursor" ] || break
  done
}

report() {
  # The command handler's message contains "exit status 3". A run without such a message did not start a process.
  local exit_code='
    def exit_code: if .state == "succeeded" then "0" else (.message | capture("exit status (?<n>[0-9]+)").n? // "-") end;'
  echo "$(find "$work/deb" -name '*.deb' | wc -l) packages unpacked, $(crontabs | grep -cv /etc/trial/) crontabs in them;" \
    "Debian $(cat /etc/debian_version), $(date -u +%Y-%m-%d)."
  echo
  echo '## Imported, and triggered once'
  echo
  echo '| Package | Entry | Schedule | As | State | Exit code | Late ms | Took ms |'
  echo '|---|---|---|---|---|---|---|---|'
  rest '/jobs?limit=500' > "$work/all-jobs.json"
  jq -r -n --slurpfile jobs "$work/jobs.jsonl" --slurpfile runs "$work/triggered.jsonl" \
    --slurpfile all "$work/all-jobs.json" "$exit_code"'
    $jobs[] | select(.package != "trial") | . as $job
    | ($runs[] | select(.job_id == $job.id)) as $run | ($all[0].items[] | select(.id == $job.id)) as $definition
    | "| \($job.package) | \($job.source) | `\($definition.schedule.expr)` | \($job.user) | \($run.state)\(if $run.reason == "" then "" else "/" + $run.reason end) | \($run | exit_code) | \($run.lateness_ms) | \($run.duration_ms) |"'
  echo
  echo '## Not imported, or changed'
  echo
  echo '| Package | Line | Text | Reason |'
  echo '|---|---|---|---|'
  jq -r -n --slurpfile jobs "$work/jobs.jsonl" --slurpfile problems "$work/problems.jsonl" '
    ([$jobs[] | select(.package != "trial") | .package + .source]) as $kept | [$problems[] | select(.user == "root")][]
    | select(.kept or ([.package + .source] - $kept | length == 1))
    | "| \(.package) | \(.source) | `\(.text | gsub("[ \t]+"; " ") | gsub("\\|"; "\\|") | .[:60])` | \(if .kept then "changed: " else "" end)\(.reason) |"'
  echo
  echo "## Runs by schedule in $left_alone s"
  echo
  echo '| Package | Entry | Schedule | Runs | Succeeded | Failed | Exit codes | Most late ms |'
  echo '|---|---|---|---|---|---|---|---|'
  jq -r -n --slurpfile jobs "$work/jobs.jsonl" --slurpfile runs "$work/scheduled.jsonl" \
    --slurpfile all "$work/all-jobs.json" "$exit_code"'
    $jobs[] as $job | [$runs[] | select(.job_id == $job.id)] as $mine | select($mine | length > 0)
    | ($all[0].items[] | select(.id == $job.id)) as $definition
    | "| \($job.package) | \($job.source) | `\($definition.schedule.expr)` | \($mine | length) | \([$mine[] | select(.state == "succeeded")] | length) | \([$mine[] | select(.state == "failed")] | length) | \([$mine[] | exit_code] | unique | join(", ")) | \([$mine[].lateness_ms // 0] | max) |"'
}

refuse_a_machine_in_use
unset "${!BELFRY_@}" # settings of the caller
work="$(mktemp -d)"
chmod 755 "$work" # the agents of other users run the program from here
pids=()
users=(root www-data news)
trap stop_all EXIT
trap 'exit 130' INT TERM
say "working in $work"
unpack_packages
write_own_crontab
start_belfry
for user in "${users[@]}"; do
  start_agent "$user"
done
import_crontabs
trigger_each_once
leave_alone
report
