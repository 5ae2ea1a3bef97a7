#!/bin/sh
# The secret of this stack's Spark cluster, in the directory named as the only argument. What is there stays. Applications come
# from drivers that know the secret: not through the master's REST server, which asks nobody for it.
set -eu
file=$1/spark.properties
if [ ! -s "$file" ]; then
    umask 077
    secret=$(openssl rand -hex 32)
    printf 'spark.%s\n' authenticate=true "authenticate.secret=$secret" network.crypto.enabled=true master.rest.enabled=false > "$file"
fi
# The services' user; a container runs this as root.
if [ "$(id -u)" = 0 ]; then
    chown -R 10001:10001 "$1"
fi
