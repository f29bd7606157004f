#!/bin/sh
# %post of the RPM package. $1 is 1 for an installation, and 2 for an update.
if ! getent passwd belfry >/dev/null; then
  useradd --system --user-group --home-dir /var/lib/belfry --no-create-home --shell /sbin/nologin belfry
fi
install -d -m 0700 -o belfry -g belfry /var/lib/belfry
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
if [ "$1" = 1 ]; then
  if [ -d /run/systemd/system ]; then systemctl preset belfry.service || true; fi
  echo "Start Belfry with: systemctl enable --now belfry.service"
  echo "The first password of the user admin will be in /var/lib/belfry/initial-password."
fi
