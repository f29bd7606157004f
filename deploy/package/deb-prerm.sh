#!/bin/sh
# prerm of the Debian package. During an update, processes keep running until postinst or an administrator restarts them.
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  systemctl stop belfry.service 'belfry-*.service' || true
fi
