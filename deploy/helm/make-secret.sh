#!/bin/sh
# Prints the Secret of the chart, with new random credentials:
#
#   deploy/helm/make-secret.sh --namespace belfry --database-url 'postgres://…' | kubectl apply -f -
#
# Without --database-url, it names the Postgres server of the chart (postgres.enabled). With --nats-host, it names your own NATS server and
# not those of the chart; its configuration needs the same passwords. The account key of NATS is created with Go if it is installed,
# otherwise with Docker.
set -eu
release=belfry namespace=default name=belfry database='' nats=''
while [ $# -gt 0 ]; do
  case "$1" in
  --release) release="$2" ;;
  --namespace) namespace="$2" ;;
  --name) name="$2" ;;
  --database-url) database="$2" ;;
  --nats-host) nats="$2" ;;
  *)
    echo "usage: $0 [--release belfry] [--namespace default] [--name belfry] [--database-url URL] [--nats-host HOST:PORT]" >&2
    exit 2
    ;;
  esac
  shift 2
done
cd "$(dirname "$0")/.."

# secret prints 192 random bits.
secret() { od -An -v -tx1 -N24 /dev/urandom | tr -d ' \n'; }

# servers USER PASSWORD prints the addresses of the NATS servers.
servers() {
  if [ -n "$nats" ]; then
    echo "nats://$1:$2@$nats"
    return
  fi
  printf 'nats://%s:%s@%s-nats-0.%s-nats:4222,nats://%s:%s@%s-nats-1.%s-nats:4222,nats://%s:%s@%s-nats-2.%s-nats:4222\n' \
    "$1" "$2" "$prefix" "$prefix" "$1" "$2" "$prefix" "$prefix" "$1" "$2" "$prefix" "$prefix"
}

# The chart names its objects in the same way.
case "$release" in
*belfry*) prefix="$release" ;;
*) prefix="$release-belfry" ;;
esac
[ ${#prefix} -le 26 ] || {
  echo "$0: the chart shortens names that begin with $prefix: choose a shorter name of the release" >&2
  exit 2
}

if command -v go >/dev/null; then
  key=$(go run github.com/nats-io/nkeys/nk -gen account -pubout)
else
  key=$(docker run --rm natsio/nats-box:0.18.0 nk -gen account -pubout)
fi
postgres=$(secret) user=$(secret) sys=$(secret)

cat <<END
apiVersion: v1
kind: Secret
metadata:
  name: $name
  namespace: $namespace
stringData:
  database-url: "${database:-postgres://belfry:$postgres@$prefix-postgres:5432/belfry?sslmode=disable}"
  postgres-password: "$postgres"
  nats-url: "$(servers belfry "$user")"
  nats-system-url: "$(servers sys "$sys")"
  nats-password: "$user"
  nats-sys-password: "$sys"
  nats-cluster-password: "$(secret)"
  nats-issuer: "$(printf '%s\n' "$key" | grep '^A')"
  nats-issuer-seed: "$(printf '%s\n' "$key" | grep '^SA')"
  secret-key: "$(secret)"
  admin-password: "$(secret)"
END
