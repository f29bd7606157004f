#!/bin/sh
# postinst of the Debian package. $2 is the version that was installed before, or empty.
set -e
[ "$1" = configure ] || exit 0

if ! getent passwd belfry >/dev/null; then
  useradd --system --user-group --home-dir /var/lib/belfry --no-create-home --shell /usr/sbin/nologin belfry
fi
install -d -m 0700 -o belfry -g belfry /var/lib/belfry

# As other services on Debian, belfry.service is enabled and started, unless the administrator disabled it or a policy forbids it.
# Units of single roles stay as they are, because an administrator restarts them one by one.
deb-systemd-helper unmask belfry.service >/dev/null || true
if deb-systemd-helper --quiet was-enabled belfry.service; then
  deb-systemd-helper enable belfry.service >/dev/null || true
else
  deb-systemd-helper update-state belfry.service >/dev/null || true
fi
if [ -d /run/systemd/system ]; then
  systemctl --system daemon-reload >/dev/null || true
  if [ -n "$2" ]; then action=restart; else action=start; fi
  deb-systemd-invoke "$action" belfry.service >/dev/null || true
fi
if [ -z "$2" ]; then
  echo "Belfry's console is at http://127.0.0.1:8080. The first password of the user admin is in /var/lib/belfry/initial-password."
fi
