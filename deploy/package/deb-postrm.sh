#!/bin/sh
# postrm of the Debian package. It never deletes data.
set -e
case "$1" in
remove)
  if [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi
  if command -v deb-systemd-helper >/dev/null; then deb-systemd-helper mask belfry.service >/dev/null || true; fi
  ;;
purge)
  if command -v deb-systemd-helper >/dev/null; then
    deb-systemd-helper purge belfry.service >/dev/null || true
    deb-systemd-helper unmask belfry.service >/dev/null || true
  fi
  rm -f /etc/systemd/system/multi-user.target.wants/belfry-*.service
  # /var/lib/belfry-executor is the spool of an executor, and belfry-gateway that of a gateway. systemd keeps them in /var/lib/private.
  for dir in /var/lib/belfry /var/lib/private/belfry-executor* /var/lib/private/belfry-gateway* /etc/belfry; do
    if [ -n "$(ls -A "$dir" 2>/dev/null)" ]; then echo "Belfry's files are kept in $dir. To delete them: rm -r $dir"; fi
  done
  ;;
esac
