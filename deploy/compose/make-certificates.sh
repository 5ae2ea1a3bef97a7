#!/bin/sh
# A private CA of this stack, and one certificate for all its services, in the directory named as the only argument. What is
# there stays: delete the directory's files to get others. The key of the CA is thrown away: nobody can sign another caller.
set -eu
directory=$1
names=DNS:localhost,IP:127.0.0.1
for service in source checkpoint heartbeat configsync; do
    names=$names,DNS:$service
done
if [ ! -s "$directory/tls.crt" ]; then
    umask 077
    mkdir -p "$directory"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    openssl ecparam -name prime256v1 -genkey -noout -out "$work/ca.key"
    openssl req -x509 -new -key "$work/ca.key" -days 3650 -subj "/CN=twinlog compose CA" -out "$directory/ca.crt"
    openssl ecparam -name prime256v1 -genkey -noout -out "$directory/tls.key"
    openssl req -new -key "$directory/tls.key" -subj "/CN=twinlog" -out "$work/tls.csr"
    printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$names" > "$work/extensions"
    openssl x509 -req -in "$work/tls.csr" -CA "$directory/ca.crt" -CAkey "$work/ca.key" -CAserial "$work/ca.srl" -CAcreateserial -days 825 \
        -extfile "$work/extensions" -out "$directory/tls.crt"
fi
# The services' user; a container runs this as root.
if [ "$(id -u)" = 0 ]; then
    chown -R 10001:10001 "$directory"
fi
