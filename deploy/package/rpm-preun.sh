#!/bin/sh
# %preun of the RPM package. $1 is 0 for a removal.
if [ "$1" = 0 ] && [ -d /run/systemd/system ]; then
  systemctl disable --now belfry.service || true
  systemctl stop 'belfry-*.service' || true
fi
