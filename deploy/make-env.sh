#!/bin/sh
# Prints an .env for compose.yaml with new random secrets:
#
#   (umask 077; ./make-env.sh > .env)
#
# It creates the NATS account key with Go if it is installed, otherwise with Docker.
set -eu
cd "$(dirname "$0")"

# secret prints 192 random bits.
secret() { od -An -v -tx1 -N24 /dev/urandom | tr -d ' \n'; }

if command -v go >/dev/null; then
  key=$(go run github.com/nats-io/nkeys/nk -gen account -pubout)
else
  key=$(docker run --rm natsio/nats-box:0.18.0 nk -gen account -pubout)
fi
seed=$(printf '%s\n' "$key" | grep '^SA')
public=$(printf '%s\n' "$key" | grep '^A')

cat <<END
POSTGRES_PASSWORD=$(secret)
NATS_PASSWORD=$(secret)
NATS_SYS_PASSWORD=$(secret)
NATS_CLUSTER_PASSWORD=$(secret)
SECRET_KEY=$(secret)
NATS_ISSUER=$public
NATS_ISSUER_SEED=$seed
BELFRY_ADMIN_PASSWORD=$(secret)
GRAFANA_ADMIN_PASSWORD=$(secret)
$(grep '^VERSION=' env.example)
END
