#!/bin/sh
# %postun of the RPM package. $1 is 0 for a removal, and 1 for an update. It never deletes data.
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
  # Administrators restart the units of single roles one by one.
  if [ "$1" = 1 ]; then systemctl try-restart belfry.service || true; fi
fi
if [ "$1" = 0 ]; then echo "Belfry's data is kept in /var/lib/belfry. To delete it: rm -r /var/lib/belfry"; fi
